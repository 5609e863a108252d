"""A2: the replies of a recorded run, replayed in other orders, give the same bytes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from focus import Agent, Allowance, Collection, Collector, Critic, Problem, Search, Segments
from focus.execution import AdmissionPool, Execution, ExecutionServices
from focus.policies.base import Policy
from focus.promises.base import Measured, Stand
from focus.records import encode_critic, encode_sample
from focus.records.records import CriticContext
from focus.records.strict_json import dumps
from focus.records.tree_codec import encode_tree
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import RecordedPolicy, RecordingPolicy, ScriptedPolicy, Shuffled

__all__ = ("digest", "grow", "replayed")

_STEPS = 12
_PROBLEMS = 3
_PERMITS = (1, 8, 64)


def replayed(stand: Stand) -> Measured:
    """Record one run, then replay it with its replies in random orders, under 1, 8, 64 permits."""
    orders = stand.pick(quick=20, full=1_000)
    recording = RecordingPolicy(ScriptedPolicy(walk_script(_STEPS)))
    expected = digest(anyio.run(grow, recording, 8))
    differing = 0
    for order in range(orders):
        policy = Shuffled(_recorded(recording.replies), seed=order)
        found = anyio.run(grow, policy, _PERMITS[order % len(_PERMITS)])
        differing += digest(found) != expected
        stand.progress(order + 1, orders)
    detail = {"replies": len(recording.replies), "trees": _PROBLEMS, "permits": list(_PERMITS)}
    return Measured(differing, orders, detail)


def _recorded(replies: Mapping[str, Mapping[str, Any]]) -> RecordedPolicy:
    return RecordedPolicy(ScriptedPolicy(walk_script(_STEPS)), replies)


async def grow(policy: Policy, permits: int) -> list[Collection]:
    """Collect several trees at once under one pool, in the order of their problems."""
    found: dict[int, Collection] = {}

    async def one(number: int, services: ExecutionServices) -> None:
        async with _collector(policy, services) as collector:
            found[number] = await collector.collect(Problem(id=number, prompt=f"Walk {number}."))

    numbers = list(range(_PROBLEMS))
    random.Random(permits).shuffle(numbers)
    async with (
        ExecutionServices(AdmissionPool(permits)) as services,
        anyio.create_task_group() as group,
    ):
        for number in numbers:
            group.start_soon(one, number, services)
    return [found[number] for number in range(_PROBLEMS)]


def _collector(policy: Policy, services: ExecutionServices) -> Collector:
    agent = Agent(
        policy,
        parser=Segments(3),
        allowance=Allowance(tokens=_STEPS + 1),
        execution=Execution(services=services),
    )
    return Collector(
        agent=agent,
        env=WalkEnv(),
        search=Search.two_phase(tokens=200, concurrency=4),
        critic=Critic.function(_by_height, version="height/1"),
        own=False,
    )


async def _by_height(contexts: Sequence[CriticContext]) -> list[float]:
    heights = [context.text.count("+") - context.text.count("-") for context in contexts]
    return [min(0.95, max(0.05, 0.5 + 0.1 * height)) for height in heights]


def digest(collections: list[Collection]) -> str:
    """Of every exported byte: trees, samples, targets."""
    stored = hashlib.sha256()
    for collection in collections:
        stored.update(dumps(encode_tree(collection.tree), what="tree"))
        for sample in collection.actor:
            stored.update(dumps(encode_sample(sample), what="sample"))
        for target in collection.critic:
            stored.update(dumps(encode_critic(target), what="target"))
    return stored.hexdigest()
