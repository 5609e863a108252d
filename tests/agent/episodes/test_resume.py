"""A collection that is killed goes on from its journal, with the states of every kind."""

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus import Agent, Allowance, Collection, Collector, Sampling, Search, Turns
from focus.agent import Journal

from ..test_journal import Dying, edges_in, the_same
from .kinds import KINDS, PROBLEM, makers

EDGES = 5
"""Journalled before the kill."""


def babble(prompt: str, so_far: str, rng: random.Random) -> str:
    return rng.choice(("+", "x", "+", "x", "+stop"))


class Watched:
    """An environment that counts what it is asked."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._env, name)
        if name in ("step", "restore"):
            self.asked.append(name)
        return found


def collecting(env: Any, journal: Journal | None) -> tuple[Dying, Collector]:
    policy = Dying(babble)
    agent = Agent(
        policy,
        parser=Turns("hermes", tokens=12),
        sampling=Sampling(seed=3),
        allowance=Allowance(tokens=60, turns=3),
        journal=journal,
    )
    return policy, Collector(
        agent=agent, env=env, search=Search.two_phase(tokens=40, concurrency=2)
    )


def collect(env: Any, collector: Collector) -> Collection:
    async def main() -> Collection:
        try:
            async with collector:
                return await collector.collect(PROBLEM)
        finally:
            if hasattr(env, "aclose"):
                await env.aclose()

    return anyio.run(main)


CHILD = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.agent.episodes import test_resume as here
from tests.agent.episodes.kinds import makers
from focus.agent import Journal
from focus.testing.env_check.leaks import descendants

class Killing(Journal):
    left = {lives}

    async def note(self, tree, entry):
        await super().note(tree, entry)
        Killing.left -= 1
        if not Killing.left:
            print(*descendants(os.getpid()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

env = makers(Path({folder!r}))[{kind!r}]()
here.collect(env, here.collecting(env, Killing({journal!r}))[1])
"""


def killed(kind: str, folder: Path, journal: Path) -> list[int]:
    """Kill a collection in the middle of its tree; the processes it had started."""
    root = str(Path(__file__).parents[3])
    code = CHILD.format(root=root, lives=EDGES, folder=str(folder), journal=str(journal), kind=kind)
    child = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    return [int(pid) for pid in child.stdout.split()]


def ended(pid: int) -> bool:
    """Whether a process that is not ours is gone, or goes within half a minute."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 30)[0])
    finally:
        os.close(handle)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_tree_goes_on_with_its_states(kind: str, tmp_path: Path) -> None:
    made, journal = makers(tmp_path)[kind], tmp_path / "journal"
    env = made()
    reference, collector = collecting(env, None)
    whole = collect(env, collector)
    assert reference.requests > EDGES
    for pid in killed(kind, tmp_path, journal):
        assert ended(pid), "a process outlived the collection that started it"
    held = edges_in(journal)
    assert held >= EDGES
    env = made()
    watched = Watched(env)
    policy, again = collecting(watched, Journal(journal))
    the_same(collect(env, again), whole)
    assert policy.requests == reference.requests - held, "an edge was sampled twice"
    assert watched.asked.count("restore") == held
    assert watched.asked.count("step") <= policy.requests, "a finished edge was stepped again"
    assert getattr(env, "open_states", 0) == 0
