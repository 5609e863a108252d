"""A real tree of the shipped model, sampled in float64, and its records in both packings."""

import asyncio
from dataclasses import dataclass

import pytest
import torch

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    DirectBranchTd,
    Problem,
    Sampling,
    Search,
    SegmentAction,
    Segments,
    StepResult,
)
from focus.policies.transformers import TransformersPolicy
from focus.problem import Message
from focus.records import ActorRecord, CriticRecord, actor_records
from focus.tasks.arithmetic import make_problems, prompt_messages

torch.set_num_threads(1)


class EvenEnv:
    """Outcome 1 if the reply's digits sum to an even number: as good as a coin."""

    async def reset(self, problem: Problem) -> tuple[str, tuple[Message, ...]]:
        return "", tuple(prompt_messages(problem))

    async def step(self, state: str, action: SegmentAction, workspace: object) -> StepResult:
        if not action.finished:
            return StepResult(state=action.text)
        return StepResult(state=action.text, reward=_even(action.text), done=True)

    async def finish(self, state: str, workspace: object, reason: str) -> float:
        return _even(state)


def _even(text: str) -> float:
    return float(sum(int(letter) for letter in text if letter.isdigit()) % 2 == 0)


@dataclass(frozen=True)
class Batch:
    """Two prompts' trees, and the model that sampled them."""

    model: torch.nn.Module
    collections: tuple[Collection, ...]

    def actor(self, packing: str) -> list[ActorRecord]:
        return [
            record
            for found in self.collections
            for record in actor_records(found.tree, found.credit, packing=packing)
        ]

    @property
    def critic(self) -> list[CriticRecord]:
        return [record for found in self.collections for record in found.critic]


async def collected() -> Batch:
    policy = TransformersPolicy("builtin", device="cpu", dtype="float64", train_temperature=0.9)
    agent = Agent(
        policy, parser=Segments(12), sampling=Sampling(seed=5), allowance=Allowance(tokens=96)
    )
    found = []
    async with policy:
        for problem in make_problems(2, seed=11):
            collector = Collector(
                agent=agent,
                env=EvenEnv(),
                search=Search.two_phase(tokens=160),
                critic=Critic.constant(0.5),
                credit=DirectBranchTd(),
                own=False,
            )
            async with collector:
                found.append(await collector.collect(problem))
    return Batch(policy.model, tuple(found))


@pytest.fixture(scope="session")
def batch() -> Batch:
    return asyncio.run(collected())
