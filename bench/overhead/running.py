"""P6, P9, P10: what running a search costs, and how close it comes to the physical limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import anyio
from bench.overhead.figure import Figure
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
    Segments,
    TransformersPolicy,
)
from focus.collect import total
from focus.execution import AdmissionPool
from focus.search import Phase, RootOnly
from focus.tasks.registry import load_task
from focus.testing.envs import WalkEnv
from focus.testing.policies import END, ScriptedPolicy
from focus.tokens import FinishReason, Generation
from focus.training.making import make_collector
from focus.tree import Identity

__all__ = ("running_figures",)

_IDS = (65,) * 8
_LOG_PROBS = (-0.5,) * 8


class InstantPolicy(ScriptedPolicy):
    """Answers at once, or after a fixed service time, with eight made-up ids."""

    def __init__(self, *, service_s: float = 0.0) -> None:
        super().__init__(lambda prompt, so_far, rng: "", context_limit=100_000)
        self.service_s = service_s
        self.served_s = 0.0

    async def generate(self, prefix: Any, sampling: Any, *, tag: Any = None) -> Generation:
        started = time.perf_counter()
        await asyncio.sleep(self.service_s)
        self.served_s += time.perf_counter() - started
        ends = len(prefix) % 64 > 40
        return Generation(
            ids=(*_IDS[:-1], END) if ends else _IDS,
            log_probs=_LOG_PROBS,
            finish=FinishReason.STOP if ends else FinishReason.LENGTH,
            version=self.version,
        )


async def _collect_all(
    policy: InstantPolicy, *, trees: int, tokens: int, capacity: int, concurrency: int = 4
) -> int:
    """Requests of so many trees, all at once."""
    requests = 0
    async with ExecutionServices(AdmissionPool(capacity)) as services:

        async def one(number: int) -> None:
            nonlocal requests
            agent = Agent(
                policy,
                parser=Segments(8),
                sampling=Sampling(),
                allowance=Allowance(tokens=64),
                execution=Execution(services=services),
            )
            collector = Collector(
                agent=agent,
                env=WalkEnv(),
                search=Search([Phase(RootOnly(), tokens=tokens)], concurrency=concurrency),
                critic=Critic.constant(0.5),
                own=False,
            )
            async with collector:
                found = await collector.collect(Problem(id=number, prompt=f"problem {number}"))
            requests += found.ledger.requests_sent

        async with anyio.create_task_group() as group:
            for number in range(trees):
                group.start_soon(one, number)
    return requests


async def _tasks(policy: InstantPolicy, count: int) -> None:
    """The least that any client does: a task, a semaphore, a call."""
    gate = asyncio.Semaphore(64)
    prefix, sampling = tuple(range(40)), Sampling()

    async def one() -> None:
        async with gate:
            await policy.generate(prefix, sampling)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())


def running_figures(*, quick: bool) -> Iterator[Figure]:
    yield _per_request(trees=20 if quick else 200)
    yield from _limits(prompts=8 if quick else 32)
    yield _bubble(slots=64, waves=3 if quick else 10)


def _per_request(trees: int) -> Figure:
    policy = InstantPolicy()
    requests = 0

    def ours() -> None:
        nonlocal requests
        requests = anyio.run(lambda: _collect_all(policy, trees=trees, tokens=1600, capacity=64))

    ours()
    seconds, floor = side_by_side(ours, lambda: anyio.run(_tasks, policy, requests), rounds=3)
    return Figure.ratio(
        "P6",
        "processor time a request, search to records, against an asyncio task with a semaphore",
        seconds,
        floor,
        goal=2,
    )


def _limits(prompts: int) -> Iterator[Figure]:
    ledger, errors = anyio.run(_real_trees, prompts)
    for name, what, goal in (
        ("eta_gen", "generated tokens that are trained or give a target its value", 0.98),
        ("eta_prefill", "prefill that any collector needs, of what was computed", 0.9),
        ("eta_req", "requests needed, of those accepted", 0.9),
        ("eta_critic", "critic calls needed, of those made", 0.95),
    ):
        if ledger[name] is not None:
            yield Figure(
                id="P9",
                what=f"{name}: {what}",
                value=ledger[name],
                unit="share",
                goal=goal,
                floor=1.0,
                better="higher",
            )
    yield Figure(
        id="P10",
        what="budget error of the default mean cap: mean |spent - budget| / budget",
        value=sum(errors) / len(errors),
        unit="share",
        goal=0.05,
        floor=0.0,
    )


async def _real_trees(prompts: int) -> tuple[dict[str, Any], list[float]]:
    """Trees of the shipped model on its own task, by the default search."""
    task, budget = load_task("demo"), 640
    found = []
    async with (
        TransformersPolicy("builtin", device="cpu", max_batch=64) as policy,
        ExecutionServices(AdmissionPool(64)) as services,
    ):
        search = Search.two_phase(tokens=budget)

        async def one(problem: Problem) -> None:
            collector = make_collector(
                policy,
                task,
                problem,
                search=search,
                critic=Critic.constant(0.4),
                credit=_default_credit(),
                packing="path",
                seed=1,
                services=services,
            )
            async with collector:
                found.append(await collector.collect(problem, identity=Identity(run="bench")))

        async with anyio.create_task_group() as group:
            for problem in task.problems("train", prompts):
                group.start_soon(one, problem)
    errors = [abs(c.ledger.tokens_generated - budget) / budget for c in found]
    return total([c.ledger for c in found]).to_dict(), errors


def _default_credit() -> Any:
    from focus import RefinedTd

    return RefinedTd()


def _bubble(*, slots: int, waves: int) -> Figure:
    """Idle share of the slots between the first reply and the last request, 2 s a segment."""
    policy = InstantPolicy(service_s=2.0)
    started = time.perf_counter()
    anyio.run(
        lambda: _collect_all(
            policy, trees=2 * slots, tokens=8 * waves, capacity=slots, concurrency=1
        )
    )
    wall = time.perf_counter() - started
    busy = policy.served_s / (slots * wall)
    return Figure(
        id="P10",
        what=f"bubble: idle share of {slots} slots, 2 s a segment, twice as many trees as slots",
        value=1 - busy,
        unit="share",
        goal=0.01,
        floor=0.0,
    )
