"""Until the gate opens a fitted constant steers; its window and its state are exact."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import Collection, Credit, Critic, DirectBranchTd, LambdaTd, Ledger, RefinedTd
from focus.records import CriticContext
from focus.testing.trees import Sketch, build_tree, end, fork, random_sketch
from focus.training.gate import BaseRates, GateSample, judge
from focus.training.steering import OutcomeWindow, Steering, constant_like

LEARNED = Critic.constant(0.9)
NOTHING = Credit(estimator="refined", advantages={})


def collection(root: Sketch) -> Collection:
    return Collection(
        tree=build_tree(root),
        credit=NOTHING,
        actor=(),
        critic=(),
        ledger=Ledger(),
    )


def passing() -> list[GateSample]:
    return [GateSample(str(i), 0, float(i % 2), float(i % 2)) for i in range(600)]


def failing() -> list[GateSample]:
    return [GateSample(str(i), 0, 0.5, float(i % 2)) for i in range(600)]


def test_rates_are_means_over_the_outcomes_seen_at_each_depth() -> None:
    """A launch is evidence where it starts and passes: root 1, 0; the inner checkpoint 1, 1."""
    window = OutcomeWindow(2)
    window.add([collection(fork(0.5, fork(0.5, end(1.0), end(1.0)), end(0.0)))])
    rates = window.rates()
    assert rates.constant == pytest.approx(3 / 4)
    assert rates.by_depth == pytest.approx({0: 1 / 2, 1: 1.0})


@given(seed=st.integers(0, 2**32), shaping=st.sampled_from([0.0, 0.05, 0.4]))
def test_the_constant_is_the_mean_of_what_a_critic_is_trained_on(seed: int, shaping: float) -> None:
    """Step rewards stay out of both, where a critic predicts outcomes."""
    tree = build_tree(random_sketch(random.Random(seed), nodes=12, shaping=shaping))
    targets = LambdaTd(decay=1.0).estimate(tree).targets.values()
    total = sum(target.count for target in targets)
    window = OutcomeWindow(1, first_guess=0.5)
    window.add([Collection(tree=tree, credit=NOTHING, actor=(), critic=(), ledger=Ledger())])
    mean = sum(target.count * target.value for target in targets) / total if total else 0.5
    assert window.rates().constant == pytest.approx(mean)


@given(
    constant=st.floats(-3, 3), low=st.sampled_from([-1.0, 0.0]), high=st.sampled_from([1.0, 2.0])
)
def test_a_constant_says_nothing_that_its_critic_could_not(
    constant: float, low: float, high: float
) -> None:
    learned = Critic.constant(low, value_range=(low, high))
    said = constant_like(learned, BaseRates(constant))
    assert said.value_range == (low, high)
    assert said.fixed_value == pytest.approx(min(high, max(low, constant)), abs=1e-6)


def test_only_the_last_rounds_count() -> None:
    window = OutcomeWindow(2)
    for outcome in (0.0, 1.0, 1.0):
        window.add([collection(fork(0.5, end(outcome)))])
    assert window.rates().constant == 1.0


def test_before_any_outcome_the_first_guess_is_the_constant() -> None:
    assert OutcomeWindow(1, first_guess=0.3).rates() == BaseRates(0.3)


def test_a_window_survives_its_state() -> None:
    window, copy = OutcomeWindow(2), OutcomeWindow(2)
    window.add([collection(fork(0.5, end(1.0), end(0.0)))])
    copy.restore(json.loads(json.dumps(window.to_list())))
    assert copy.rates() == window.rates()


def test_the_learned_critic_steers_while_its_last_judgement_holds() -> None:
    steering = Steering(OutcomeWindow(1, first_guess=0.25))
    assert not steering.is_open
    assert steering.critic(LEARNED).version == "constant-0.25"
    assert isinstance(steering.credit(), RefinedTd)
    steering.judged(judge(passing(), BaseRates(0.5)), round_index=3)
    assert steering.critic(LEARNED) is LEARNED
    assert isinstance(steering.credit(), DirectBranchTd)
    steering.judged(judge(failing(), BaseRates(0.5)), round_index=4)
    assert steering.critic(LEARNED).version == "constant-0.25"
    assert steering.opened_round == 3


def test_lambda_credit_trusts_outcomes_alone_until_the_gate_opens() -> None:
    steering = Steering(OutcomeWindow(1), 0.8)
    assert steering.credit() == LambdaTd(decay=1.0)
    steering.judged(judge(passing(), BaseRates(0.5)), round_index=0)
    assert steering.credit() == LambdaTd(decay=0.8)


def test_a_constant_renders_for_the_critic_that_learns_from_it() -> None:
    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        return [0.5 for _ in contexts]

    learned = Critic.function(predict, version="1", renderer="surprisal/1")
    assert Steering(OutcomeWindow(1)).critic(learned).renderer == "surprisal/1"


def test_steering_survives_its_state() -> None:
    steering = Steering(OutcomeWindow(2))
    steering.window.add([collection(fork(0.5, end(1.0)))])
    steering.judged(judge(passing(), BaseRates(0.5)), round_index=1)
    copy = Steering(OutcomeWindow(2))
    copy.restore(json.loads(json.dumps(steering.to_dict())))
    assert copy.report == steering.report
    assert (copy.is_open, copy.opened_round) == (True, 1)
    assert copy.window.rates() == steering.window.rates()
