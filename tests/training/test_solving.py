"""Accuracy and fresh outcomes: every problem once, nothing counted as wrong that failed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import Critic, ExecutionServices, Problem
from focus.errors import EnvError, Refused
from focus.execution import AdmissionPool
from focus.records import CriticContext
from focus.tasks.registry import Task
from focus.testing.envs import LiveEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.training.gate import GateSample
from focus.training.solving import Accuracy, evaluate, gate_samples


def walk_task(envs: list[LiveEnv], make: type[LiveEnv] = LiveEnv) -> Task:
    def make_env(problem: Problem) -> LiveEnv:
        envs.append(make())
        return envs[-1]

    return Task(
        name="walk",
        segment_tokens=3,
        allowance_tokens=9,
        draw=lambda split, count, seed: (),
        make_env=make_env,
    )


PROBLEMS = [Problem(id=n, prompt=f"Walk {n}.") for n in range(12)]


def evaluated(policy: Any, task: Task, *, capacity: int = 4, **options: Any) -> Accuracy:
    async def main() -> Accuracy:
        async with ExecutionServices(AdmissionPool(capacity)) as services:
            return await evaluate(policy, task, PROBLEMS, seed=3, services=services, **options)

    return asyncio.run(main())


def sampled(policy: Any, critic: Critic, task: Task) -> list[GateSample]:
    async def main() -> list[GateSample]:
        async with ExecutionServices(AdmissionPool(4)) as services:
            return await gate_samples(policy, critic, task, PROBLEMS, seed=3, services=services)

    return asyncio.run(main())


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=200))
def test_the_interval_of_a_rate_holds_the_rates_that_a_score_test_allows(
    outcomes: list[float],
) -> None:
    found = Accuracy.of(outcomes, tokens=0, truncated=0)
    n, mean = len(outcomes), sum(outcomes) / len(outcomes)
    low, high = found.ci95
    assert (found.accuracy, found.n) == (mean, n)
    assert 0 <= low <= mean <= high <= 1
    assert low < high
    for end in {low, high} - {0.0, 1.0}:
        assert abs(mean - end) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / n), rel=1e-4)


def test_the_interval_of_graded_outcomes_is_the_normal_one() -> None:
    found = Accuracy.of([0.0, 0.5, 1.0, 0.5] * 25, tokens=0, truncated=0)
    half = 1.96 * math.sqrt(0.125 / 99)
    assert found.ci95 == pytest.approx((0.5 - half, 0.5 + half))


def test_each_problem_is_solved_once_and_truncated_ones_count() -> None:
    envs: list[LiveEnv] = []
    seen: list[tuple[int, int]] = []
    found = evaluated(
        ScriptedPolicy(walk_script(12)),
        walk_task(envs),
        progress=lambda done, of, mean: seen.append((done, of)),
    )
    assert len(envs) == found.n == len(PROBLEMS)
    assert found.truncated == len(PROBLEMS), "12 steps do not fit into 9 tokens"
    assert found.tokens == 9 * len(PROBLEMS)
    assert seen == [(done, len(PROBLEMS)) for done in range(1, len(PROBLEMS) + 1)]
    assert all(env.opened == env.released > 0 for env in envs)


def test_capacity_changes_nothing_but_time() -> None:
    found = [
        evaluated(ScriptedPolicy(walk_script(7)), walk_task([]), capacity=capacity)
        for capacity in (1, 3, 64)
    ]
    assert found[0] == found[1] == found[2]
    assert 0 < found[0].accuracy < 1


def test_a_solution_that_fails_is_an_error_and_never_a_zero() -> None:
    class Broken(LiveEnv):
        async def finish(self, state: Any, workspace: object, reason: str) -> float:
            raise OSError("grader gone")

    envs: list[LiveEnv] = []
    with pytest.raises(EnvError, match="grader gone"):
        evaluated(ScriptedPolicy(walk_script(12)), walk_task(envs, Broken))
    assert all(env.opened == env.released for env in envs)


def test_evaluation_may_have_a_temperature_of_its_own() -> None:
    temperatures: set[float | None] = set()

    class Listening(ScriptedPolicy):
        async def generate(self, prefix: Any, sampling: Any, *, tag: Any = None) -> Any:
            temperatures.add(sampling.temperature)
            return await super().generate(prefix, sampling, tag=tag)

    evaluated(Listening(walk_script(7)), walk_task([]), temperature=0.0)
    assert temperatures == {0.0}


async def by_height(contexts: Sequence[CriticContext]) -> list[float]:
    return [0.5 + 0.02 * (c.text.count("+") - c.text.count("-")) for c in contexts]


def test_the_judge_sees_every_open_checkpoint_of_one_rollout_with_a_fresh_outcome() -> None:
    envs: list[LiveEnv] = []
    critic = Critic.function(by_height, version="h")
    found = sampled(ScriptedPolicy(walk_script(7)), critic, walk_task(envs))
    by_problem: dict[str, list[GateSample]] = {}
    for sample in found:
        by_problem.setdefault(sample.problem, []).append(sample)
    assert list(by_problem) == [problem.key for problem in PROBLEMS], "in order of the problems"
    for samples in by_problem.values():
        assert [sample.depth for sample in samples] == [0, 1, 2]
        assert samples[0].prediction == 0.5
        assert {sample.outcome for sample in samples} <= {0.0, 1.0}
    assert {s.outcome for s in found} == {0.0, 1.0}
    assert all(env.opened == env.released for env in envs)
    assert found == sampled(ScriptedPolicy(walk_script(7)), critic, walk_task([]))


def test_a_judge_whose_policy_fails_leaves_nothing_open() -> None:
    class Failing(ScriptedPolicy):
        async def generate(self, *args: Any, **options: Any) -> Any:
            if self.requests == 30:
                raise Refused("no")
            return await super().generate(*args, **options)

    envs: list[LiveEnv] = []
    with pytest.raises(Refused):
        sampled(Failing(walk_script(7)), Critic.constant(0.5), walk_task(envs))
    assert sum(env.opened for env in envs) > 10
    assert all(env.opened == env.released for env in envs)
