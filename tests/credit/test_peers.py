"""Estimators of other methods, held against each other and against plain arithmetic."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.credit import (
    DirectBranchTd,
    Estimator,
    Grpo,
    Rloo,
    SpoTree,
    TreeGrpo,
    TreeRl,
    VinePpo,
)
from focus.credit.leaves import leaf_returns, sums_below
from focus.errors import ConfigError, CreditError
from focus.testing.trees import Sketch, build_tree, chain, end, fork, random_sketch
from focus.tree import Returns, suffix_returns

PEERS = [SpoTree(), TreeGrpo(), TreeGrpo(within=False, scale=False), TreeRl(), VinePpo()]
outcomes = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=6)


@st.composite
def drawings(draw):
    rng = random.Random(draw(st.integers(0, 10**6)))
    return random_sketch(rng, nodes=draw(st.integers(2, 30)), shaping=draw(st.sampled_from([0, 1])))


def finished(sketch):
    """The drawing with an outcome on every leaf."""
    if not sketch.children:
        return end(0.5 if sketch.outcome is None else sketch.outcome)
    return fork(sketch.value, *map(finished, sketch.children))


def probed(sketch, rng):
    """A rollout-like drawing with two probes at each live checkpoint."""
    if sketch.is_terminal:
        return sketch
    probes = [end(float(rng.random() < 0.5), phase=1) for _ in range(2)]
    return fork(sketch.value, *[probed(child, rng) for child in sketch.children], *probes)


def chains(returns_, depths=None):
    depths = depths or [1] * len(returns_)
    return fork(
        None, *(chain([0.5] * (d - 1), outcome=r) for r, d in zip(returns_, depths, strict=True))
    )


@pytest.mark.parametrize("estimator", PEERS)
def test_they_fulfil_the_protocol_and_read_no_critic(estimator):
    assert isinstance(estimator, Estimator)
    assert estimator.prior_strength is None
    drawing = fork(None, fork(None, end(1.0), end(0.0)), end(1.0))
    drawing = probed(drawing, random.Random(0)) if isinstance(estimator, VinePpo) else drawing
    credit = estimator.estimate(build_tree(drawing))
    assert credit.advantages
    assert not credit.targets


@pytest.mark.parametrize("estimator", PEERS)
@given(outcome=st.sampled_from([0.0, 0.1, 0.3, 1.0]), drawing=drawings())
def test_equal_outcomes_teach_exactly_nothing(estimator, outcome, drawing):
    def same(sketch):
        if not sketch.children:
            return end(outcome, phase=sketch.phase)
        return fork(None, *map(same, sketch.children), phase=sketch.phase)

    drawing = finished(drawing)
    if isinstance(estimator, VinePpo):
        drawing = probed(drawing, random.Random(0))
    assert set(estimator.estimate(build_tree(same(drawing))).advantages.values()) <= {0.0}


@given(drawing=drawings())
def test_spo_is_direct_branch_td_whose_critic_has_no_weight(drawing):
    tree = build_tree(finished(drawing))
    vanishing = DirectBranchTd(mc_backup=True, prior_strength=1e-12)
    ours = SpoTree().estimate(tree).advantages
    assert ours == pytest.approx(vanishing.estimate(tree).advantages, abs=1e-9)


@given(returns_=outcomes, seed=st.integers(0, 99))
def test_on_independent_rollouts_trees_are_groups(returns_, seed):
    rng = random.Random(seed)
    tree = build_tree(chains(returns_, [rng.randint(1, 4) for _ in returns_]))
    for scale in (True, False):
        grouped = TreeGrpo(within=False, scale=scale).estimate(tree).advantages
        assert grouped == pytest.approx(Grpo(scale=scale).estimate(tree).advantages)
    assert TreeGrpo().estimate(tree).advantages == pytest.approx(Grpo().estimate(tree).advantages)
    flat = build_tree(chains(returns_))
    twice = {head: 2 * a for head, a in Rloo().estimate(flat).advantages.items()}
    assert TreeRl().estimate(flat).advantages == pytest.approx(twice)


@given(drawing=drawings(), discount=st.sampled_from([1.0, 0.5]))
def test_leaf_returns_are_the_suffix_returns_of_their_paths(drawing, discount):
    returns = Returns(discount=discount)
    tree = build_tree(drawing, returns=returns)
    totals = leaf_returns(tree, estimator="test")
    for leaf in tree.terminals():
        path = tree.path(leaf)[1:]
        assert totals[leaf] == pytest.approx(suffix_returns(tree, path, returns)[0])


@given(drawing=drawings())
def test_sums_below_count_each_leaf_once_per_ancestor(drawing):
    tree = build_tree(drawing)
    leaves = {leaf: float(leaf) for leaf in tree.terminals()}
    below = sums_below(tree, leaves)
    for node in tree:
        under = [leaf for leaf in leaves if node.id in tree.path(leaf)]
        assert (node.id in below) == bool(under)
        if under:
            assert below[node.id] == (sum(under), len(under))


@given(seed=st.integers(0, 999), depth=st.integers(1, 5))
def test_vine_advantages_telescope_and_probes_do_not_train(seed, depth):
    rng = random.Random(seed)
    tree = build_tree(probed(chain([None] * depth, outcome=float(rng.random() < 0.5)), rng))
    credit = VinePpo().estimate(tree)
    rollout = [node.id for node in tree.edges() if node.incoming.provenance.phase == 0]
    assert list(credit.advantages) == rollout
    total = sum(credit.advantages.values())
    assert total == pytest.approx(tree.outcome(rollout[-1]) - credit.values[0])


class TestRefusals:
    def test_spo_needs_every_outcome(self):
        with pytest.raises(CreditError, match="node 1 is an unfinished leaf"):
            SpoTree().estimate(build_tree(fork(None, fork(None), end(1.0))))

    def test_vine_needs_a_probe_at_every_checkpoint(self):
        tree = build_tree(fork(None, fork(None, end(1.0)), end(0.0, phase=1)))
        with pytest.raises(CreditError, match="node 1 of a rollout has no finished probe"):
            VinePpo().estimate(tree)
        assert VinePpo().estimate(tree, allow_partial=True).advantages == {}

    def test_a_phase_is_not_negative(self):
        with pytest.raises(ConfigError, match="phase"):
            VinePpo(rollouts=-1)

    def test_unfinished_probes_measure_nothing(self):
        half = Sketch(phase=1, children=())
        tree = build_tree(fork(None, end(1.0), half))
        with pytest.raises(CreditError, match="no finished probe"):
            VinePpo().estimate(tree)


def test_open_leaves_get_no_weight_from_leaf_estimators():
    tree = build_tree(fork(None, fork(None), end(1.0), end(0.0)))
    for estimator in (TreeGrpo(), TreeRl()):
        assert sorted(estimator.estimate(tree).advantages) == [2, 3]
    assert TreeRl().estimate(build_tree(fork(None, end(1.0)))).advantages == {}
