"""What holds on every tree."""

import dataclasses
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.credit import DirectBranchTd, Estimator, Grpo, RefinedTd, Rloo
from focus.errors import CreditError
from focus.testing.trees import build_tree, chain, end, fork, preorder, random_sketch
from focus.tree import Returns

TD = [DirectBranchTd(), RefinedTd()]
ALL = [*TD, Grpo(), Rloo()]

drawings = st.builds(
    lambda seed, nodes, eagerness, shaping: random_sketch(
        random.Random(seed), nodes=nodes, eagerness=eagerness, shaping=shaping
    ),
    st.integers(0, 2**32),
    st.integers(2, 120),
    st.sampled_from([0.0, 0.4, 0.8]),
    st.sampled_from([0.0, 0.1]),
)
strengths = st.floats(1e-3, 1e3)


def changed(drawing, change):
    """The drawing with every node replaced by ``change(node)``, children first."""
    children = tuple(changed(child, change) for child in drawing.children)
    return change(dataclasses.replace(drawing, children=children))


@pytest.mark.parametrize("estimator", ALL)
def test_fulfils_the_protocol(estimator):
    assert isinstance(estimator, Estimator)


@given(drawing=drawings, strength=strengths)
def test_advantage_is_a_shrunken_leave_one_out(drawing, strength):
    tree = build_tree(drawing)
    plain = DirectBranchTd(prior_strength=strength).estimate(tree).advantages
    left_out = DirectBranchTd(prior_strength=strength, leave_one_out=True).estimate(tree).advantages
    for node, advantage in plain.items():
        siblings = len(tree.children(tree[node].parent))
        shrink = (strength + siblings - 1) / (strength + siblings)
        assert advantage == pytest.approx(shrink * left_out[node], abs=1e-12)


@pytest.mark.parametrize("estimator", TD)
@given(drawing=drawings, strength=strengths)
def test_advantages_telescope(estimator, drawing, strength):
    tree = build_tree(drawing)
    credit = dataclasses.replace(estimator, prior_strength=strength).estimate(tree)
    for leaf in tree.leaves():
        path = tree.path(leaf)[1:]
        total = math.fsum(tree.header.returns.edge_reward(tree[node].incoming) for node in path)
        left = credit.values[leaf] - credit.values[0]
        assert math.fsum(credit.advantages[n] for n in path) == pytest.approx(
            total + left, abs=1e-9
        )


@given(drawing=drawings)
def test_advantages_follow_from_the_values_bit_by_bit(drawing):
    tree = build_tree(drawing, returns=Returns(discount=0.9))
    for estimator in TD:
        credit = estimator.estimate(tree)
        for node in tree.edges():
            ahead = tree.header.returns.backed_up(node.incoming, credit.values[node.id])
            assert credit.advantages[node.id] == ahead - credit.values[node.parent]


@pytest.mark.parametrize("estimator", TD)
@given(drawing=drawings, sampled=st.integers(1, 5), observed=st.integers(0, 5))
def test_tokens_do_not_matter(estimator, drawing, sampled, observed):
    other = changed(drawing, lambda s: dataclasses.replace(s, sampled=sampled, observed=observed))
    assert estimator.estimate(build_tree(other)) == estimator.estimate(build_tree(drawing))


@settings(deadline=None)
@given(drawing=drawings, seed=st.integers(0, 2**32))
def test_order_of_siblings_does_not_matter(drawing, seed):
    rng = random.Random(seed)
    names = iter(range(10**6))
    named = changed(drawing, lambda s: dataclasses.replace(s, observed=next(names)))
    mixed = changed(
        named,
        lambda s: dataclasses.replace(s, children=tuple(rng.sample(s.children, len(s.children)))),
    )

    def by_name(sketch):
        credit = DirectBranchTd().estimate(build_tree(sketch))
        name = [node.observed for node in preorder(sketch)]
        return (
            {name[node]: advantage for node, advantage in credit.advantages.items()},
            {name[node]: target for node, target in credit.targets.items()},
        )

    assert by_name(mixed) == by_name(named)


@pytest.mark.parametrize("estimator", TD)
def test_a_tree_that_agrees_with_its_critic_gives_exactly_zero(estimator):
    tree = build_tree(fork(0.3, end(0.3), end(0.3), fork(0.3, end(0.3), fork(0.3)), end(0.3)))
    assert set(estimator.estimate(tree).advantages.values()) == {0.0}


@pytest.mark.parametrize("estimator", TD)
def test_critic_values_of_terminals_are_not_read(estimator):
    plain = build_tree(fork(0.3, end(1.0), end(0.0)))
    scored = build_tree(fork(0.3, end(1.0, value=math.nan), end(0.0, value=0.9)))
    assert estimator.estimate(scored) == estimator.estimate(plain)


@pytest.mark.parametrize("estimator", TD)
def test_truncated_leaves_are_terminal_and_open_ones_have_the_critic(estimator):
    def advantages(leaf):
        return estimator.estimate(build_tree(fork(0.3, leaf, end(1.0)))).advantages

    assert advantages(end(0.0, truncated=True)) == advantages(end(0.0))
    assert 1 in advantages(fork(0.7))


def test_an_edge_without_a_sampled_token_counts_as_a_branch_but_is_not_trained():
    drawing = fork(0.5, end(1.0, sampled=0, observed=2), end(0.0))
    for estimator in ALL:
        assert list(estimator.estimate(build_tree(drawing)).advantages) == [2]
    assert DirectBranchTd().estimate(build_tree(drawing)).targets[0].count == 2


@pytest.mark.parametrize("estimator", [*TD, Rloo(), Grpo()])
def test_depth_is_no_limit(estimator):
    credit = estimator.estimate(build_tree(fork(0.5, chain([0.5] * 5000, outcome=1.0), end(0.0))))
    assert len(credit.advantages) == 5002


class TestShaping:
    drawing = fork(0.5, fork(0.5, end(1.0, step_reward=-0.2)), end(0.0, step_reward=-0.2))

    @pytest.mark.parametrize("estimator", TD)
    def test_targets_of_an_outcome_critic_leave_step_rewards_out(self, estimator):
        outcomes = changed(self.drawing, lambda s: dataclasses.replace(s, step_reward=0.0))
        shaped, plain = (estimator.estimate(build_tree(d)) for d in (self.drawing, outcomes))
        assert shaped.targets == plain.targets
        assert shaped.advantages != plain.advantages

    @pytest.mark.parametrize("estimator", TD)
    def test_a_wider_range_lets_them_in(self, estimator):
        tree = build_tree(self.drawing, critic_range=(-1.0, 1.0))
        assert estimator.estimate(tree).targets[1].value == pytest.approx(0.8)


class TestMissingNumbers:
    @pytest.mark.parametrize("estimator", TD)
    @pytest.mark.parametrize("value", [None, math.nan, math.inf])
    def test_a_missing_prediction_is_an_error(self, estimator, value):
        with pytest.raises(CreditError, match="node 1 has no usable critic value"):
            estimator.estimate(build_tree(fork(0.5, fork(value, end(1.0)))))

    @pytest.mark.parametrize("estimator", TD)
    def test_a_partial_tree_may_miss_predictions_but_not_hold_nan(self, estimator):
        with pytest.raises(CreditError, match="node 1"):
            estimator.estimate(build_tree(fork(0.5, fork(math.nan))), allow_partial=True)

    @pytest.mark.parametrize("estimator", ALL)
    def test_an_infinite_reward_is_an_error(self, estimator):
        with pytest.raises(CreditError, match="node 2: the return over its edge is inf"):
            estimator.estimate(build_tree(fork(0.5, end(1.0), end(math.inf))))

    def test_edges_at_an_unvalued_checkpoint_are_as_if_absent(self):
        lost = fork(None, fork(0.4, end(1.0), end(0.0)))
        partial = build_tree(fork(0.5, end(1.0), lost, end(0.0)))
        whole = build_tree(fork(0.5, end(1.0), end(0.0)))
        inner = build_tree(fork(0.4, end(1.0), end(0.0)))
        for estimator in (DirectBranchTd(), DirectBranchTd(leave_one_out=True, reach=True)):
            credit = estimator.estimate(partial, allow_partial=True)
            outer, below = estimator.estimate(whole), estimator.estimate(inner)
            assert credit.advantages == {
                1: outer.advantages[1],
                4: below.advantages[1],
                5: below.advantages[2],
                6: outer.advantages[2],
            }
            assert credit.targets == {0: outer.targets[0], 3: below.targets[0]}

    def test_refined_values_keep_the_outcomes_of_a_partial_tree(self):
        tree = build_tree(fork(0.5, fork(None, fork(0.4, end(1.0))), end(0.0)))
        credit = RefinedTd().estimate(tree, allow_partial=True)
        assert credit.values == {0: 0.5, 2: 0.7, 3: 0.0, 4: 0.0}
        assert set(credit.advantages) == {3, 4}
        assert set(credit.targets) == {0, 2}

    @given(drawing=drawings)
    def test_a_whole_tree_is_the_same_with_and_without_leave(self, drawing):
        tree = build_tree(drawing)
        for estimator in TD:
            assert estimator.estimate(tree, allow_partial=True) == estimator.estimate(tree)
