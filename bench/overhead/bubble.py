"""P10: how long slots stand idle because the next request is not there yet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from bench.overhead.figure import Figure

from focus import (
    Agent,
    Allowance,
    Collector,
    Execution,
    ExecutionServices,
    Problem,
    Search,
    Segments,
    SGLangPolicy,
)
from focus.execution import AdmissionPool
from focus.policies.http import HttpServer
from focus.testing.envs import WalkEnv
from focus.testing.loopback import ByteTokenizer

__all__ = ("bubble", "idle_share")

_SEGMENT = 8


def bubble(*, slots: int, segments: int, goal: float, service_s: float = 2.0) -> Figure:
    """Idle share of the slots with twice as many trees, each a chain of `segments`."""
    busy = anyio.run(_collect, slots, segments, service_s)
    return Figure(
        id="P10",
        what=(
            f"bubble: idle share of {slots} slots, {service_s:g} s a segment, twice as many "
            "trees as slots, server in a process of its own"
        ),
        value=idle_share(busy, slots=slots),
        unit="share",
        goal=goal,
        floor=0.0,
    )


def idle_share(busy: list[tuple[float, float]], *, slots: int) -> float:
    """Share of slot time without a request, from the first full house to the last.

    The slots fill at the first `slots` arrivals, which then come back in the order in which
    they were sent: the window opens once each of them was answered. It closes with the last
    arrival but `slots`, behind which there may be too little work for all.

    >>> idle_share([(0, 2), (2, 4), (4, 6), (6, 8)], slots=1)
    0.0
    >>> round(idle_share([(0, 2), (3, 5), (6, 8), (9, 11)], slots=1), 4)  # 3 of 7 seconds
    0.4286
    """
    arrivals = sorted(arrived for arrived, _ in busy)
    opens = max(left for _, left in sorted(busy)[:slots])
    closes = arrivals[-slots]
    inside = sum(max(0.0, min(left, closes) - max(arrived, opens)) for arrived, left in busy)
    return max(0.0, 1.0 - inside / (slots * (closes - opens)))


async def _collect(slots: int, segments: int, service_s: float) -> list[tuple[float, float]]:
    with _server(service_s) as url:
        async with (
            SGLangPolicy(url, tokenizer=ByteTokenizer()) as policy,
            ExecutionServices(AdmissionPool(slots)) as services,
            anyio.create_task_group() as group,
        ):
            for number in range(2 * slots):
                group.start_soon(_tree, policy, services, number, segments)
        told = HttpServer(url)
        try:
            return [(arrived, left) for arrived, left in await told.get("/busy")]
        finally:
            await told.aclose()


async def _tree(
    policy: SGLangPolicy, services: ExecutionServices, number: int, segments: int
) -> None:
    agent = Agent(
        policy,
        parser=Segments(_SEGMENT),
        allowance=Allowance(tokens=_SEGMENT * segments),
        execution=Execution(services=services),
    )
    collector = Collector(
        agent=agent, env=WalkEnv(), search=Search.flat(1, concurrency=1), own=False
    )
    async with collector:
        await collector.collect(Problem(id=number, prompt=f"problem {number}"))


@contextmanager
def _server(service_s: float) -> Iterator[str]:
    """The slow server, for as long as the block lasts."""
    command = [sys.executable, "-m", "bench.overhead.slow_server", str(service_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
