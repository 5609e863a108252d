"""`check_env`: does an environment keep what a tree relies on?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from focus.agent import Parser, Segments
from focus.agent.env import Env
from focus.errors import ConfigError
from focus.problem import Problem
from focus.testing.env_check.laws import Laws, Progress
from focus.testing.env_check.leaks import footprint, own_temporary_folder
from focus.testing.env_check.moves import Moves
from focus.testing.env_check.report import EnvFinding, EnvReport

__all__ = ("EnvCase", "check_case", "check_env")

Law = Callable[[], Awaitable[EnvFinding]]

_NAMES = (
    "calls",
    "determinism",
    "fork equivalence",
    "isolation",
    "release twice",
    "cancellation",
    "leaks",
    "snapshot, restore",
)


@dataclass(frozen=True, kw_only=True)
class EnvCase:
    """An environment, and what to do with it.

    Attributes:
        env: makes one; three are made, and closed where they have ``aclose``.
        problem: what they are reset with.
        actions: texts as a policy would write them, or actions for `step`.
        parser: reads the texts: the agent's.
        watch: folders beside the temporary one in which nothing may be left.

    Raises:
        ConfigError: there is no action.
    """

    env: Callable[[], Env]
    problem: Problem
    actions: Sequence[Any]
    parser: Parser = field(default_factory=lambda: Segments(256))
    watch: Sequence[Path] = ()

    def __post_init__(self) -> None:
        if not self.actions:
            raise ConfigError("a check needs at least one action to take")


def check_env(
    env_factory: Callable[[], Env],
    *,
    problem: Problem,
    actions: Sequence[Any],
    parser: Parser | None = None,
    sequences: int = 100,
    seed: int = 0,
) -> EnvReport:
    """Try the laws of forking on an environment; ``assert report.ok, report`` in a test.

    - determinism: equal actions get equal answers in any episode;
    - fork equivalence: a chain of forks answers as an episode without forks;
    - isolation: random sequences of forks, steps (two at once, too), outcomes and releases;
      what is done on one branch never shows on another;
    - release twice: harms nothing;
    - cancellation: of forks and steps, at many moments;
    - leaks: of open states, descriptors, processes, files, memory of released states;
    - snapshot, restore: through JSON, in another environment.

    A broken law comes with the shortest sequence found that breaks it. Runs an event loop
    of its own (use `check_case` inside one), and while it does, this process and its
    children have a temporary folder of their own, in which leaks are counted.

    Args:
        env_factory: makes an environment; see :class:`EnvCase` for this and the next three.
        sequences: random ones for isolation; other laws take a fifth or a tenth.
        seed: of the sequences.

    Raises:
        ConfigError: no action, or no sequence.

    >>> from focus.agent.episodes import CopiedEnv
    >>> from focus.testing.episodes import Tape
    >>> talk = Problem(id=1, prompt="Talk.")
    >>> check_env(lambda: CopiedEnv(Tape), problem=talk, actions=["+", "stop"], sequences=10).ok
    True
    """
    case = EnvCase(
        env=env_factory, problem=problem, actions=actions, parser=parser or Segments(256)
    )
    return anyio.run(lambda: check_case(case, sequences=sequences, seed=seed))


async def check_case(
    case: EnvCase,
    *,
    sequences: int = 100,
    seed: int = 0,
    progress: Progress = lambda law, done, total: None,
) -> EnvReport:
    """`check_env` on a running event loop.

    Args:
        progress: told how far it is.

    Raises:
        ConfigError: no sequence.
    """
    if sequences < 1:
        raise ConfigError(f"a check needs at least one sequence, got {sequences}")
    with own_temporary_folder() as temporary:
        folders = (temporary, *case.watch)
        before = footprint(folders)
        envs = [case.env() for _ in range(3)]
        laws = Laws(
            envs,
            case.problem,
            Moves(case.actions, case.parser),
            folders=folders,
            sequences=sequences,
            seed=seed,
            progress=progress,
        )
        try:
            findings = await _judged(laws)
        finally:
            trouble = await _closed(envs)
        del envs, laws
        left = [
            what for what in footprint(()).beyond(before) if "process" in what or "desc" in what
        ]
    if left or trouble:
        detail = "; ".join([*trouble, *(f"{what} left after closing" for what in left)])
        findings.append(EnvFinding(name="closing", state="broken", detail=detail))
    return EnvReport(tuple(findings))


async def _judged(laws: Laws) -> list[EnvFinding]:
    """Law after law; those that rest on a broken one are not tried."""
    findings: list[EnvFinding] = []
    for name, law in (("calls", laws.calls), ("determinism", laws.determinism)):
        findings.append(await _tried(name, law))
        if findings[-1].state == "broken":
            return [*findings, *_skipped(_NAMES[len(findings) :], because=name)]
    for name, law in (
        ("fork equivalence", laws.fork_equivalence),
        ("isolation", laws.isolation),
        ("release twice", laws.release_twice),
        ("cancellation", laws.cancellation),
    ):
        findings.append(await laws.measured(partial(_tried, name, law)))
        if findings[-1].state == "broken":
            rest = [each for each in _NAMES[len(findings) :] if each != "leaks"]
            return [*findings, await _tried("leaks", laws.leaks), *_skipped(rest, because=name)]
    findings.append(await _tried("leaks", laws.leaks))
    return [*findings, await _tried("snapshot, restore", laws.restoring)]


async def _tried(name: str, law: Law) -> EnvFinding:
    try:
        return await law()
    except Exception as error:
        return EnvFinding(name=name, state="broken", detail=f"raised {error!r}")


def _skipped(names: Sequence[str], *, because: str) -> list[EnvFinding]:
    detail = f"not judged: {because} is broken"
    return [EnvFinding(name=name, state="skipped", detail=detail) for name in names]


async def _closed(envs: Sequence[Any]) -> list[str]:
    """Close environments that say how; what went wrong."""
    trouble = []
    for env in envs:
        aclose = getattr(env, "aclose", None)
        if aclose is not None:
            try:
                await aclose()
            except Exception as error:
                trouble.append(f"aclose raised {error!r}")
    return trouble
