"""Stopping saves tokens, never when it is off, and the books it leaves are unbiased."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    Problem,
    RefinedTd,
    Search,
    Segments,
)
from focus.errors import ConfigError
from focus.records.records import CriticContext
from focus.search import Concurrency, EarlyStop, Phase, RootOnly, unstopped_outcomes
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy

pytestmark = pytest.mark.anyio

STEPS = 12


@cache
def chance(height: int, left: int) -> float:
    if not left:
        return float(height > 0)
    return (chance(height + 1, left - 1) + chance(height - 1, left - 1)) / 2


async def exact(contexts: Sequence[CriticContext]) -> list[float]:
    walks = [context.text.rpartition("assistant: ")[2] for context in contexts]
    return [chance(w.count("+") - w.count("-"), STEPS - len(w)) for w in walks]


async def wrong(contexts: Sequence[CriticContext]) -> list[float]:
    return [1 - value for value in await exact(contexts)]


async def collected(
    stop: EarlyStop | None, *, problem: int = 0, rollouts: int = 8, critic: Critic | None = None
) -> Collection:
    search = Search(
        (Phase(RootOnly(), attempts=rollouts, gate=Concurrency(4), early_stop=stop),),
        concurrency=4,
    )
    collector = Collector(
        agent=Agent(
            ScriptedPolicy(walk_script(STEPS)),
            parser=Segments(3),
            allowance=Allowance(tokens=STEPS + 1),
        ),
        env=WalkEnv(),
        search=search,
        critic=critic or Critic.function(exact, version="exact/1"),
        credit=RefinedTd(),
    )
    async with collector:
        return await collector.collect(Problem(id=problem, prompt=f"Walk {problem}."))


async def test_off_by_default_and_a_sure_coin_changes_nothing() -> None:
    plain, kept = await collected(None), await collected(EarlyStop(below=0.5, keep=1.0))
    assert Phase(RootOnly(), attempts=1).early_stop is None
    assert [node.incoming for node in plain.tree.edges()] == [
        node.incoming for node in kept.tree.edges()
    ]
    assert [node.value for node in plain.tree] == [node.value for node in kept.tree]
    assert plain.ledger.critic_calls == kept.ledger.critic_calls


async def test_a_stopped_tip_is_cut_valued_forkable_and_without_evidence() -> None:
    stop = EarlyStop(below=0.3, keep=0.1)
    found = await collected(stop, rollouts=24)
    tree, books = found.tree, found.ledger
    tips = [n for n in tree if not n.is_terminal and not tree.children(n.id)]
    assert tips
    assert all(tip.value is not None and tip.value < stop.below for tip in tips)
    assert books.expansions_cut == len(tips)
    assert books.expansions_completed == 24 - len(tips)
    finished = await collected(None, rollouts=24)
    assert books.tokens_generated < 0.8 * finished.ledger.tokens_generated


async def test_the_same_replies_give_the_same_stops() -> None:
    stop = EarlyStop(below=0.3, keep=0.5)
    first, again = await collected(stop), await collected(stop)
    assert [n.incoming for n in first.tree.edges()] == [n.incoming for n in again.tree.edges()]


@pytest.mark.parametrize("critic", [exact, wrong], ids=["exact", "wrong"])
async def test_means_are_unbiased_whatever_the_critic_says(critic: object) -> None:
    """Over many trees the corrected mean is the true value; finished rollouts alone are not."""
    stop = EarlyStop(below=0.4, keep=0.5)
    valued = Critic.function(critic, version="c")  # type: ignore[arg-type]
    corrected, naive = [], []
    for problem in range(150):
        found = await collected(stop, problem=problem, rollouts=8, critic=valued)
        stats = unstopped_outcomes(found.tree, stop)[0]
        corrected += [stats.mean] * stats.count
        naive += [found.tree.outcome(leaf) for leaf in found.tree.terminals()]
    truth = chance(0, STEPS)
    assert sum(corrected) / len(corrected) == pytest.approx(truth, abs=0.07)
    assert abs(sum(naive) / len(naive) - truth) > 0.09


@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    outcome=st.floats(0, 1),
    keep=st.sampled_from([0.125, 0.25, 0.5, 1.0]),
)
def test_the_weights_are_exact_over_all_coins(
    values: list[float], outcome: float, keep: float
) -> None:
    """Σ over coins of P(coins) · sample = outcome, for one fixed rollout."""
    stop = EarlyStop(below=0.5, keep=keep)
    total = 0.0
    for coins in itertools.product([True, False], repeat=len(values)):
        weight, passed, alive = 1.0, 0, True
        for value, lucky in zip(values, coins, strict=True):
            weight *= keep if lucky else 1 - keep
            alive = alive and stop.goes_on(value, coin=0.0 if lucky else 1.0)
            passed += value < stop.below
        total += weight * (outcome / keep**passed if alive else 0.0)
    assert total == pytest.approx(outcome)


@pytest.mark.parametrize(
    "options", [{"keep": 0.0}, {"keep": 1.5}, {"keep": float("nan")}, {"below": float("nan")}]
)
def test_settings_that_cannot_be_honoured_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        EarlyStop(**options)
