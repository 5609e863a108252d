"""E3: environments of every kind on one machine, forked, stepped, released and restored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from focus.agent.env import Env
from focus.agent.episodes import CopiedEnv, DirectoryEnv, ProcessEnv, ReplayedEnv
from focus.problem import Problem
from focus.promises.base import Measured, Stand
from focus.testing.env_check import check_env
from focus.testing.envs import LiveEnv, WalkEnv
from focus.testing.episodes import FolderTape, Tape

__all__ = ("KINDS", "branches_apart", "broken_laws")

_ACTIONS = ("+", "-", "x")
_STEPS = re.compile(r"(\d+) steps")

KINDS: Mapping[str, Callable[[], Env]] = {
    "values": WalkEnv,
    "live states": LiveEnv,
    "copies": lambda: CopiedEnv(Tape),
    "replays": lambda: ReplayedEnv(Tape),
    "folders": lambda: DirectoryEnv(FolderTape),
    "processes": lambda: ProcessEnv("focus.testing.episodes:Tape"),
}
"""What makes an environment, by kind; containers need an engine, which is not here."""


def branches_apart(stand: Stand) -> Measured:
    """Random sequences on every kind; counts the laws of forking that broke."""
    return broken_laws(KINDS, stand, sequences=stand.pick(quick=6, full=1_000))


def broken_laws(
    kinds: Mapping[str, Callable[[], Env]], stand: Stand, *, sequences: int
) -> Measured:
    """Laws that did not hold, over all `kinds`."""
    problem = Problem(id="p", prompt="Talk.")
    broken, steps = {}, 0
    for number, (kind, make) in enumerate(kinds.items()):
        stand.progress(number, len(kinds))
        report = check_env(make, problem=problem, actions=_ACTIONS, sequences=sequences)
        steps += sum(int(found) for found in _STEPS.findall(str(report)))
        if not report.ok:
            broken[kind] = {
                each.name: each.detail for each in report.findings if each.name in report.broken
            }
    count = sum(map(len, broken.values()))
    return Measured(count, sequences * len(kinds), {"steps": steps, "broken": broken})
