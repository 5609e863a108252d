"""Picking an answer at equal tokens: what each method picks, and that a good critic helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import AdmissionPool, Critic, ExecutionServices, Problem
from focus.errors import ConfigError
from focus.records.records import CriticContext
from focus.tasks.registry import Task
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.training.searching import METHODS, Leaf, SearchReport, compare_searches, pick

pytestmark = pytest.mark.anyio

STEPS = 12
TASK = Task(
    name="walk",
    segment_tokens=3,
    allowance_tokens=STEPS + 1,
    draw=lambda split, count, seed: tuple(
        Problem(id=n, prompt=f"Walk {seed}/{n}.") for n in range(count)
    ),
    make_env=lambda problem: WalkEnv(),
)

leaves = st.lists(
    st.builds(
        Leaf,
        answer=st.sampled_from("abc"),
        value=st.floats(0, 1),
        outcome=st.sampled_from([0.0, 1.0]),
    ),
    min_size=1,
    max_size=12,
)


@given(leaves)
def test_one_at_random_is_right_as_often_as_the_average(found: list[Leaf]) -> None:
    expected = sum(leaf.outcome for leaf in found) / len(found)
    assert pick(found, "unbranched") == pytest.approx(expected)


@given(leaves)
def test_a_vote_picks_a_most_frequent_answer(found: list[Leaf]) -> None:
    votes = Counter(leaf.answer for leaf in found)
    winners = {leaf.outcome for leaf in found if votes[leaf.answer] == max(votes.values())}
    assert pick(found, "majority") in winners


@given(leaves)
def test_the_critic_picks_the_first_of_the_highest_values(found: list[Leaf]) -> None:
    best = max(leaf.value for leaf in found)
    first = next(leaf for leaf in found if leaf.value == best)
    assert pick(found, "best of n") == pick(found, "guided search") == first.outcome


@cache
def chance(height: int, left: int) -> float:
    """V of a walk at `height` with `left` steps to go."""
    if not left:
        return float(height > 0)
    return (chance(height + 1, left - 1) + chance(height - 1, left - 1)) / 2


async def exact(contexts: Sequence[CriticContext]) -> list[float]:
    walks = [context.text.rpartition("assistant: ")[2] for context in contexts]
    return [chance(w.count("+") - w.count("-"), STEPS - len(w)) for w in walks]


async def compared(critic: Critic, *, tokens: int = 60, count: int = 40) -> SearchReport:
    policy = ScriptedPolicy(walk_script(STEPS))
    async with ExecutionServices(AdmissionPool(64)) as services:
        return await compare_searches(
            policy,
            critic,
            TASK,
            TASK.problems("heldout", count, seed=1),
            tokens=tokens,
            seed=3,
            services=services,
        )


async def test_a_critic_that_knows_finds_what_a_vote_cannot() -> None:
    report = await compared(Critic.function(exact, version="exact/1"))
    assert tuple(report.methods) == METHODS
    by_name = report.methods
    assert by_name["best of n"].gain_ci95[0] > 0.3
    assert by_name["guided search"].gain_ci95[0] > 0.3
    assert abs(by_name["majority"].gain) < 0.15
    assert by_name["unbranched"].gain == 0.0
    assert by_name["guided search"].solutions > by_name["best of n"].solutions


async def test_every_method_has_the_same_budget() -> None:
    report = await compared(Critic.function(exact, version="exact/1"), tokens=104, count=30)
    spent = [result.tokens for result in report.methods.values()]
    assert min(spent) >= 0.9 * 104
    assert max(spent) <= 104 + 4 * (STEPS + 1)


async def test_a_critic_that_knows_nothing_is_no_better_than_chance() -> None:
    report = await compared(Critic.constant(0.5), count=60)
    low, high = report.methods["best of n"].gain_ci95
    assert low < 0 < high


async def test_a_budget_too_small_for_one_solution_says_so() -> None:
    async def silent(contexts: Sequence[CriticContext]) -> list[float]:
        return [0.5] * len(contexts)

    with pytest.raises(ConfigError, match="buys nothing"):
        await compared(Critic.function(silent, version="c"), tokens=1)


def test_a_report_is_plain_json_with_every_method() -> None:
    report = SearchReport(methods={}, problems=0, tokens=2, critic_version="c")
    assert report.to_dict() == {
        "methods": {},
        "n": 0,
        "tokens_per_problem": 2,
        "critic_version": "c",
    }
