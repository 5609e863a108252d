"""C2: a long faulted run, watched for growth."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from focus.agent import Agent, Segments
from focus.checkpoint import Allowance
from focus.collect import Collector
from focus.critic import Critic
from focus.errors import FocusError
from focus.execution import AdmissionPool, Execution, ExecutionServices, RetryPolicy
from focus.policies.sglang import SGLangPolicy
from focus.problem import Problem
from focus.promises.base import Measured, Stand
from focus.sampling import Sampling
from focus.search import Search
from focus.testing.chaos import ChaosServer, Mix, NonceTokenizer
from focus.testing.chaos.parts import FaultyEnv, faulty_critic

__all__ = ("Sighting", "growth_mb_per_hour", "no_growth", "soak")

_WARM_UP = 0.3
_SIGHTINGS = 120
_AT_ONCE = 3
_LOOKS = 500
_HELD = ("descriptors", "tasks", "threads")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True)
class Sighting:
    """What the process held at one moment, with no collection in flight.

    Attributes:
        at_s: since the start.
        rss_mb: resident memory, garbage and free memory given back.
        descriptors, tasks, threads: open and running.
        trees: collected so far.
    """

    at_s: float
    rss_mb: float
    descriptors: int
    tasks: int
    threads: int
    trees: int


def no_growth(stand: Stand) -> Measured:
    """Slope of resident memory after the warm-up, in MB/h; anything else that grew breaks it."""
    before, *seen, after = anyio.run(soak, stand.pick(quick=300.0, full=600.0), stand)
    steady = [one for one in seen if one.at_s >= _WARM_UP * after.at_s]
    first, last = steady[0], steady[-1]
    grown = {name: max(0, getattr(after, name) - getattr(before, name)) for name in _HELD}
    slope = growth_mb_per_hour(steady)
    detail = {
        "seconds": round(last.at_s),
        "trees": last.trees,
        "mb_per_hour": round(slope, 3),
        "rss_mb": [round(first.rss_mb, 2), round(last.rss_mb, 2)],
        "grown": grown,
        "most_held": {name: max(getattr(one, name) for one in seen) for name in grown},
    }
    return Measured(max(slope, 0.0) + 1_000.0 * sum(grown.values()), last.trees, detail)


def growth_mb_per_hour(seen: Sequence[Sighting]) -> float:
    """Least-squares slope of resident memory.

    >>> flat = [Sighting(t, 50.0, 9, 1, 1, 0) for t in (0.0, 10.0, 20.0)]
    >>> growth_mb_per_hour(flat)
    0.0
    >>> growth_mb_per_hour([Sighting(t, t / 3600, 9, 1, 1, 0) for t in (0.0, 10.0, 20.0)])
    1.0
    """
    count = len(seen)
    mean_t = sum(one.at_s for one in seen) / count
    mean_m = sum(one.rss_mb for one in seen) / count
    rise = sum((one.at_s - mean_t) * (one.rss_mb - mean_m) for one in seen)
    run = sum((one.at_s - mean_t) ** 2 for one in seen)
    return round(3600.0 * rise / run, 6) if run else 0.0


async def soak(seconds: float, stand: Stand) -> list[Sighting]:
    """Collect faulted trees for a while, with one client, one server and one critic.

    The first sighting is from before they were opened, the last from after they were closed.
    """
    seen = [_sighting(time.monotonic(), 0)]
    numbers = itertools.count()
    critic = faulty_critic(share=0.01, deadline_s=0.3)
    async with (
        ChaosServer(Mix(seed=5)) as server,
        SGLangPolicy(server.url, tokenizer=NonceTokenizer()) as policy,
    ):
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds:
            until = started + min(seconds, elapsed + seconds / _SIGHTINGS)
            async with anyio.create_task_group() as group:
                for _ in range(_AT_ONCE):
                    group.start_soon(_collect_until, until, policy, critic, numbers)
            server.forget()
            seen.append(_sighting(started, next(numbers)))
            stand.progress(round(elapsed), round(seconds))
    seen.append(await _rested(started, next(numbers), seen[0]))
    return seen


async def _rested(started: float, trees: int, before: Sighting) -> Sighting:
    """Connections of the server end with tasks of their own; what stays for long is held."""
    for _ in range(_LOOKS):
        if not _holds_more(last := _sighting(started, trees), before):
            break
        await anyio.sleep(0.01)
    return last


def _holds_more(one: Sighting, before: Sighting) -> bool:
    return any(getattr(one, name) > getattr(before, name) for name in _HELD)


async def _collect_until(
    until: float, policy: SGLangPolicy, critic: Critic, numbers: itertools.count[int]
) -> None:
    """One tree at least, however late it is."""
    number = -1
    while number < 0 or time.monotonic() < until:
        number = next(numbers)
        services = ExecutionServices(AdmissionPool(4))
        execution = Execution(
            services=services,
            deadline_s=0.5,
            env_deadline_s=0.5,
            retry=RetryPolicy(base_s=0.004),
        )
        agent = Agent(
            policy,
            parser=Segments(5),
            sampling=Sampling(seed=number),
            allowance=Allowance(tokens=17),
            execution=execution,
        )
        env = FaultyEnv(share=0.01, seed=number)
        search = Search.two_phase(tokens=60, concurrency=4)
        async with Collector(agent=agent, env=env, search=search, critic=critic) as collector:
            try:
                await collector.collect(Problem(id=number, prompt="Walk."), allow_partial=True)
            except FocusError:
                continue


def _give_back() -> None:
    """Collect garbage, and hand free memory to the system where the C library can.

    What is left is what is held; without it, the largest reply so far would look like a leak.
    """
    gc.collect()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def _sighting(started: float, trees: int) -> Sighting:
    _give_back()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sighting(
        at_s=time.monotonic() - started,
        rss_mb=pages * _PAGE_MB,
        descriptors=len(os.listdir("/proc/self/fd")),
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        trees=trees,
    )
