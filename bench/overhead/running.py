"""P6: what the library costs per request, from the choice of a checkpoint to the records."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import anyio
from bench.overhead.bubble import bubble
from bench.overhead.figure import Figure
from bench.overhead.limits import limit_figures
from bench.overhead.timing import side_by_side

from focus import (
    Agent,
    Allowance,
    Collector,
    Critic,
    Execution,
    ExecutionServices,
    Problem,
    Sampling,
    Search,
    SegmentAction,
    Segments,
)
from focus.collect.driver import Driver
from focus.execution import AdmissionPool
from focus.search import Phase, RootOnly
from focus.testing.envs import WalkEnv
from focus.testing.policies import END, Grouped, ScriptedPolicy
from focus.tokens import FinishReason, Generation
from focus.tree import TreeHeader

__all__ = ("InstantPolicy", "running_figures")

_IDS = (65,) * 8
_LOG_PROBS = (-0.5,) * 8
_PROMPT = 40


class InstantPolicy(ScriptedPolicy):
    """Answers in the next turn of the loop with eight made-up ids."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, so_far, rng: "", context_limit=100_000)

    async def generate(self, prefix: Any, sampling: Any, *, tag: Any = None) -> Generation:
        await asyncio.sleep(0)
        ends = len(prefix) % 64 > 40
        return Generation(
            ids=(*_IDS[:-1], END) if ends else _IDS,
            log_probs=_LOG_PROBS,
            finish=FinishReason.STOP if ends else FinishReason.LENGTH,
            version=self.version,
        )


def running_figures(*, quick: bool) -> Iterator[Figure]:
    """P6, P9 and P10."""
    _unburdened()
    yield from _per_request(trees=20 if quick else 200)
    yield _many_trees(20, 200 if quick else 1000)
    yield from limit_figures(prompts=8 if quick else 32)
    for slots, goal in ((64, 0.01), (512, 0.03)):
        _unburdened()
        yield bubble(slots=slots, segments=6 if quick else 12, goal=goal)


def _unburdened() -> None:
    """What was measured before is no burden of the garbage collector's from here on."""
    gc.collect()
    gc.freeze()


def _per_request(trees: int) -> Iterator[Figure]:
    policy = InstantPolicy()
    requests = anyio.run(_collect_all, policy, trees)

    def plain() -> None:
        anyio.run(_tasks, policy, requests)

    grown = side_by_side(lambda: anyio.run(_grow_all, policy, trees), plain, turns=5)
    yield Figure.ratio(
        "P6",
        "scheduler and bookkeeping: processor time of a request until its tree stands, against "
        "an asyncio task with a semaphore; both ask the policy, decode and step",
        grown,
        goal=2,
    )
    kept = side_by_side(lambda: anyio.run(_collect_all, policy, trees), plain, turns=5)
    yield Figure.ratio("P6", "the same until its checked records stand", kept, goal=3)


def _many_trees(few: int, many: int) -> Figure:
    """Cost of a request with many trees at once over that with few."""
    policy = InstantPolicy()

    def collect(trees: int) -> float:
        started = time.process_time()
        requests = anyio.run(_collect_all, policy, trees)
        return (time.process_time() - started) / requests

    ratio = median(collect(many) / collect(few) for _ in range(3))
    return Figure.ratio("P6", f"a request with {many} trees at once against {few}", ratio, goal=1.5)


def _collector(policy: Any, services: ExecutionServices) -> Collector:
    agent = Agent(
        policy,
        parser=Segments(8),
        sampling=Sampling(),
        allowance=Allowance(tokens=64),
        execution=Execution(services=services),
    )
    search = Search([Phase(RootOnly(), tokens=1600, siblings=4)], concurrency=8)
    critic = Critic.constant(0.5)
    return Collector(agent=agent, env=WalkEnv(), search=search, critic=critic, own=False)


async def _collect_all(policy: InstantPolicy, trees: int) -> int:
    """Requests of so many trees, all at once, to their records."""
    requests = 0
    async with ExecutionServices(AdmissionPool(64)) as services:

        async def one(number: int) -> None:
            nonlocal requests
            async with _collector(Grouped(policy), services) as collector:
                found = await collector.collect(Problem(id=number, prompt=f"problem {number}"))
            requests += found.ledger.requests_sent

        async with anyio.create_task_group() as group:
            for number in range(trees):
                group.start_soon(one, number)
    return requests


async def _grow_all(policy: InstantPolicy, trees: int) -> None:
    """The same trees, without credit and records."""
    async with ExecutionServices(AdmissionPool(64)) as services:

        async def one(number: int) -> None:
            made = _collector(Grouped(policy), services)
            critic = Critic.constant(0.5)
            driver = Driver(
                made.agent, made.env, made.search, critic, name=f"tree-{number}", strict=True
            )
            problem = Problem(id=number, prompt=f"problem {number}")
            root = await made.agent.start(problem, made.env)
            header = TreeHeader(
                problem=problem, prompt_ids=root.context.ids(), policy_version=policy.version
            )
            await driver.grow(header, root)

        async with anyio.create_task_group() as group:
            for number in range(trees):
                group.start_soon(one, number)


async def _tasks(policy: InstantPolicy, count: int) -> None:
    """The least that any client does: a task, a semaphore, a call; then decode and step."""
    gate = asyncio.Semaphore(64)
    prefix, sampling, env = tuple(range(_PROMPT)), Sampling(), WalkEnv()

    async def one() -> None:
        async with gate:
            reply = await policy.generate(prefix, sampling)
        action = SegmentAction(reply.ids, finished=False, text=policy.decode(reply.ids))
        await env.step(0, action, None)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
