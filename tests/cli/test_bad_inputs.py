"""Faults that only show while a tree grows: critics and graders that misbehave."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import anyio
import pytest

from focus import Agent, Allowance, Collector, Critic, Problem, Sampling, Search, Segments
from focus.errors import CriticError
from focus.records.records import CriticContext
from focus.tasks import Grader, MathEnv
from focus.testing.policies import ScriptedPolicy

HOSTILE = r"\boxed{9^{9^{9^{9^{9}}}}}"


def hostile(prompt: str, so_far: str, rng: random.Random) -> str:
    return HOSTILE[len(so_far) :]


def collector(policy: ScriptedPolicy, critic: Critic, grader: Grader) -> Collector:
    return Collector(
        agent=Agent(
            policy, parser=Segments(64), sampling=Sampling(seed=1), allowance=Allowance(tokens=64)
        ),
        env=MathEnv("5", grader=grader),
        search=Search.flat(2),
        critic=critic,
    )


@pytest.mark.anyio
@pytest.mark.parametrize("value", [math.nan, 1.2, -0.1, math.inf])
async def test_a_critic_out_of_range_is_refused_before_a_token(value: float) -> None:
    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        return [value] * len(contexts)

    policy = ScriptedPolicy(hostile)
    critic = Critic.function(predict, version="broken/1")
    async with Grader() as grader, collector(policy, critic, grader) as single:
        with pytest.raises(CriticError, match=r"broken/1.*outside \[0, 1\]"):
            await single.collect(Problem(id=1, prompt="2 + 3"))
    assert policy.requests == 0


@pytest.mark.anyio
async def test_an_answer_that_hangs_the_grader_costs_its_author_and_not_the_tree() -> None:
    policy = ScriptedPolicy(hostile)
    async with (
        Grader(deadline_s=0.3) as grader,
        collector(policy, Critic.constant(0.5), grader) as single,
    ):
        with anyio.fail_after(60):
            found = await single.collect(Problem(id=1, prompt="2 + 3"))
        assert found.root_outcomes == [0.0, 0.0]
        assert grader.counts.unverifiable == 2
