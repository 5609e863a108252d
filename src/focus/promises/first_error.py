"""R8: the first error wins, whichever part raised it, and nothing is left open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from focus.agent import Agent
from focus.checkpoint import Allowance
from focus.collect import Collection, Collector
from focus.execution import AdmissionPool, Execution, ExecutionServices, RetryPolicy
from focus.problem import Problem
from focus.promises.base import Measured, Stand
from focus.records import JsonlDirectory
from focus.records.files import Files
from focus.sampling import Sampling
from focus.search import Fifo, Phase, Search
from focus.testing.fuses import (
    Fuse,
    FusedEnv,
    FusedGate,
    FusedPolicy,
    FusedSegments,
    causes,
    fused_critic,
)

__all__ = ("first_error_wins",)

_PARTS = ("policy", "decode", "parser", "env", "critic", "scheduler", "sink")
_PROBLEM = Problem(id="walk", prompt="Walk.")
_SOON_S = 1.0


def first_error_wins(stand: Stand) -> Measured:
    """Places at which a part raises, less those where its error is the cause of what comes out.

    Also counted: a state not released, a task or permit left, an end more than a second later.
    """
    tokens = stand.pick(quick=30, full=120)
    wrong: dict[str, int] = {}
    places = 0
    for part in _PARTS:
        found = list(_each_place(part, tokens, stand.folder / part))
        wrong[part] = sum(found)
        places += len(found)
        stand.progress(len(wrong), len(_PARTS))
    return Measured(sum(wrong.values()), places, {"places": places, "wrong": wrong})


def _each_place(part: str, tokens: int, folder: Path) -> Iterator[bool]:
    """Whether something is wrong, for the n-th call of a part, until there is no n-th call."""
    n = 1
    while True:
        fuse = Fuse(n, lambda: OSError("blown") if part == "sink" else RuntimeError("blown"))
        error, is_clean = _attempt(part, fuse, tokens, folder / str(n))
        is_soon = time.monotonic() - fuse.blown_at_s < _SOON_S
        if not fuse.blown:
            return
        yield fuse.error not in causes(error) or not is_clean or not is_soon
        n += 1


def _attempt(part: str, fuse: Fuse, tokens: int, folder: Path) -> tuple[BaseException | None, bool]:
    """What came out of a collection, and whether nothing was left."""
    scene = _Scene(part, fuse, tokens, folder)
    try:
        error = asyncio.run(scene.run())
    except Exception as raised:
        error = raised
    pool = scene.services.pool.statistics
    is_closed = scene.env.opened == scene.env.released
    return error, is_closed and not scene.tasks_left and not (pool.in_use or pool.waiting)


class _FusedFiles(Files):
    """File calls that put a file in its place, with a fuse."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def create(self, path: Path) -> int:
        self._fuse.burn()
        return super().create(path)

    def write(self, descriptor: int, data: memoryview) -> int:
        self._fuse.burn()
        return super().write(descriptor, data)

    def link(self, source: Path, target: Path) -> None:
        self._fuse.burn()
        super().link(source, target)


class _Scene:
    """One collection, one part of which has a fuse."""

    def __init__(self, part: str, fuse: Fuse, tokens: int, folder: Path) -> None:
        self._fuses = {name: Fuse(0, RuntimeError) for name in _PARTS} | {part: fuse}
        self._tokens = tokens
        self._folder = folder
        self.env = FusedEnv(self._fuses["env"])
        self.services = ExecutionServices(AdmissionPool(2))
        self.tasks_left = 0

    async def run(self) -> BaseException | None:
        try:
            async with self._collector() as collector:
                self._store(await collector.collect(_PROBLEM))
        except Exception as error:
            return error
        finally:
            self.tasks_left = len(asyncio.all_tasks()) - 1
        return None

    def _store(self, found: Collection) -> None:
        JsonlDirectory(self._folder, files=_FusedFiles(self._fuses["sink"])).write(found.critic)

    def _collector(self) -> Collector:
        fuses = self._fuses
        agent = Agent(
            FusedPolicy(fuses["policy"], fuses["decode"]),
            parser=FusedSegments(3, fuse=fuses["parser"]),
            sampling=Sampling(seed=7),
            allowance=Allowance(tokens=7),
            execution=Execution(services=self.services, retry=RetryPolicy(base_s=0.0)),
        )
        gate = FusedGate(fuses["scheduler"])
        search = Search((Phase(Fifo(), tokens=self._tokens, gate=gate),), concurrency=3)
        return Collector(
            agent=agent, env=self.env, search=search, critic=fused_critic(fuses["critic"])
        )
