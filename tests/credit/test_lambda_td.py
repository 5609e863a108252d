"""λ-returns on trees, held against generalised advantage estimation and its limits."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.credit import LambdaTd, RefinedTd, Rloo
from focus.errors import ConfigError, CreditError
from focus.testing.exact_gradient import (
    TabularTask,
    exact_gradient,
    expected_update,
    fixed_widths,
    relative_bias,
)
from focus.testing.trees import build_tree, chain, end, fork, random_sketch
from focus.tree import Returns

values = st.lists(st.floats(0, 1), min_size=1, max_size=8)
decays = st.floats(0, 1)


@given(values=values, outcome=st.floats(0, 1), decay=decays, discount=st.sampled_from([1.0, 0.7]))
def test_on_one_rollout_it_is_generalised_advantage_estimation(values, outcome, decay, discount):
    drawing = chain(values, outcome=outcome, duration=1)
    tree = build_tree(drawing, returns=Returns(discount=discount))
    advantages = LambdaTd(decay=decay).estimate(tree).advantages
    after = [*values[1:], 0.0]
    rewards = [*[0.0] * (len(values) - 1), outcome]
    total = 0.0
    for t in reversed(range(len(values))):
        delta = rewards[t] + discount * after[t] - values[t]
        total = delta + discount * decay * total
        assert advantages[t + 1] == pytest.approx(total, abs=1e-12)


@given(seed=st.integers(0, 999), nodes=st.integers(2, 40), decay=decays)
def test_a_tree_that_agrees_with_its_critic_teaches_exactly_nothing(seed, nodes, decay):
    def level(sketch):
        return fork(0.3, *map(level, sketch.children)) if sketch.children else end(0.3)

    drawing = level(random_sketch(random.Random(seed), nodes=nodes))
    advantages = LambdaTd(decay=decay).estimate(build_tree(drawing)).advantages
    assert set(advantages.values()) <= {0.0}


@given(outcomes=st.lists(st.floats(0, 1), min_size=2, max_size=6), seed=st.integers(0, 9))
def test_without_critic_weight_whole_outcomes_are_compared_as_rloo_does(outcomes, seed):
    rng = random.Random(seed)
    chains = [chain([rng.random()] * rng.randint(0, 3), outcome=r) for r in outcomes]
    tree = build_tree(fork(0.9, *chains))
    ours = LambdaTd(decay=1.0, prior_strength=1e-9).estimate(tree).advantages
    plain = Rloo().estimate(tree).advantages
    for head in tree.children(0):
        assert ours[head] == pytest.approx(plain[head], abs=1e-6)


@pytest.mark.parametrize("strength", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("widths", [(1, 1), (2, 1), (3, 1, 1)])
def test_whole_outcomes_of_rollouts_are_unbiased_for_any_critic(widths, strength):
    game = TabularTask.random(random.Random(3), depth=len(widths))
    estimator = LambdaTd(decay=1.0, prior_strength=strength)
    update = expected_update(estimator, game, fixed_widths(*widths))
    gradient = exact_gradient(game)
    assert relative_bias(update, {k: widths[0] * g for k, g in gradient.items()}) < 1e-10


def test_a_trusted_critic_that_is_wrong_biases_it():
    game = TabularTask.random(random.Random(3), depth=2)
    update = expected_update(LambdaTd(decay=0.5), game, fixed_widths(2, 1))
    gradient = exact_gradient(game)
    assert relative_bias(update, {k: 2 * g for k, g in gradient.items()}) > 0.05


@given(seed=st.integers(0, 999), nodes=st.integers(2, 40), decay=decays)
def test_targets_are_suffix_outcomes_whatever_the_critic_says(seed, nodes, decay):
    tree = build_tree(random_sketch(random.Random(seed), nodes=nodes))
    assert LambdaTd(decay=decay).estimate(tree).targets == RefinedTd().estimate(tree).targets


def test_an_open_leaf_is_worth_what_the_critic_says():
    tree = build_tree(fork(0.5, fork(0.9), end(0.0)))
    credit = LambdaTd(decay=1.0).estimate(tree)
    assert credit.advantages == pytest.approx({1: 0.65, 2: -0.7})


class TestMissingNumbers:
    def test_a_missing_value_is_refused(self):
        tree = build_tree(fork(0.5, fork(None, end(1.0)), end(0.0)))
        with pytest.raises(CreditError, match="node 1"):
            LambdaTd().estimate(tree)

    def test_or_left_out_with_the_edges_at_it(self):
        tree = build_tree(fork(0.5, fork(None, end(1.0)), end(0.0)))
        credit = LambdaTd().estimate(tree, allow_partial=True)
        assert credit.advantages == {3: -0.5}

    @pytest.mark.parametrize("decay", [-0.1, 1.1, float("nan")])
    def test_decay_is_checked(self, decay):
        with pytest.raises(ConfigError, match="decay"):
            LambdaTd(decay=decay)
