"""Every estimator against a second definition, written recursively in exact fractions."""

import random
import sys
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.credit import DirectBranchTd, RefinedTd
from focus.testing.trees import build_tree, end, fork, preorder, random_sketch, shapes
from focus.tree import Returns

TOLERANCE = 1e-12


@pytest.fixture(autouse=True)
def deep_recursion():
    """The oracle, unlike the estimators, recurses to the depth of the tree."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(limit)


class Oracle:
    """Values and weights of a drawing, straight from their definitions.

    Nodes are named by their place in preorder, as `build_tree` does.
    """

    def __init__(self, root, returns):
        self.root = root
        self.gamma = Fraction(returns.discount)
        self.beta = Fraction(returns.step_weight)
        self.kappa = Fraction(returns.prior_strength)
        self._known = {}

    def across(self, child, worth):
        reward = Fraction(child.outcome or 0) + self.beta * Fraction(child.step_reward)
        return reward + self.gamma**child.duration * worth

    def blend(self, node, sample):
        share = self.kappa / (self.kappa + len(sample))
        mean = sum(sample) / len(sample) if sample else Fraction(0)
        return share * Fraction(node.value) + (1 - share) * mean

    def by_place(self, give):
        """Collects ``give(parent, position)`` over all edges, by place of the edge's head."""
        found, places = {}, iter(range(1, sys.maxsize))

        def visit(node):
            for position, child in enumerate(node.children):
                found[next(places)] = give(node, position)
                visit(child)

        visit(self.root)
        return found


class DirectOracle(Oracle):
    def __init__(self, root, returns, *, mc_backup=False):
        super().__init__(root, returns)
        self.mc_backup = mc_backup

    def worth(self, node):
        if node.is_terminal:
            return Fraction(0)
        if id(node) not in self._known:
            sample = self.sample(node)
            self._known[id(node)] = (
                sum(sample) / len(sample) if self.mc_backup else self.blend(node, sample)
            )
        return self._known[id(node)]

    def sample(self, node):
        return [self.across(child, self.worth(child)) for child in node.children]

    def advantages(self, rivals):
        """`rivals(i, K)`: which branches stand in the baseline of branch i of K."""

        def give(node, i):
            sample = self.sample(node)
            return sample[i] - self.blend(node, [sample[j] for j in rivals(i, len(sample))])

        return self.by_place(give)

    def reach(self):
        shares = {0: Fraction(1)}
        numbers = {id(node): place for place, node in enumerate(preorder(self.root))}

        def give(node, i):
            child = node.children[i]
            shares[numbers[id(child)]] = shares[numbers[id(node)]] / len(node.children)
            return shares[numbers[id(child)]]

        return self.by_place(give)

    def targets(self):
        return {
            place: (sum(self.sample(node)) / len(node.children), len(node.children))
            for place, node in enumerate(preorder(self.root))
            if node.children
        }


class RefinedOracle(Oracle):
    def outcome_of_birth(self, node):
        """Return of the rollout that made `node`, from there on; None if it did not end."""
        if node.is_terminal:
            return Fraction(0)
        if not node.children or node.children[0].launched:
            return None
        if id(node) not in self._known:
            first = node.children[0]
            below = self.outcome_of_birth(first)
            self._known[id(node)] = None if below is None else self.across(first, below)
        return self._known[id(node)]

    def sample(self, node):
        followed = [(child, self.outcome_of_birth(child)) for child in node.children]
        return [self.across(child, below) for child, below in followed if below is not None]

    def worth(self, node):
        return Fraction(0) if node.is_terminal else self.blend(node, self.sample(node))

    def advantages(self):
        return self.by_place(
            lambda node, i: (
                self.across(node.children[i], self.worth(node.children[i])) - self.worth(node)
            )
        )

    def targets(self):
        samples = {
            place: self.sample(node)
            for place, node in enumerate(preorder(self.root))
            if not node.is_terminal
        }
        return {place: (sum(s) / len(s), len(s)) for place, s in samples.items() if s}


def everyone(i, count):
    return range(count)


def others(i, count):
    return [j for j in range(count) if j != i]


def earlier(i, count):
    return range(i)


def assert_close(numbers, exact):
    assert numbers.keys() == exact.keys()
    for place, number in numbers.items():
        assert abs(Fraction(number) - exact[place]) <= TOLERANCE, place


def assert_targets(targets, exact):
    assert_close({p: t.value for p, t in targets.items()}, {p: v for p, (v, _) in exact.items()})
    assert {p: t.count for p, t in targets.items()} == {p: n for p, (_, n) in exact.items()}


def check_direct(drawing, returns):
    tree = build_tree(drawing, returns=returns, critic_range=(-9, 9))
    oracle = DirectOracle(drawing, returns)
    credit = DirectBranchTd().estimate(tree)
    assert_close(credit.advantages, oracle.advantages(everyone))
    assert_targets(credit.targets, oracle.targets())
    assert_close(credit.values, {p: oracle.worth(s) for p, s in enumerate(preorder(drawing))})
    for estimator, rivals in (
        (DirectBranchTd(leave_one_out=True), others),
        (DirectBranchTd(baseline="earlier"), earlier),
    ):
        assert_close(estimator.estimate(tree).advantages, oracle.advantages(rivals))


def check_mc(drawing, returns):
    oracle = DirectOracle(drawing, returns, mc_backup=True)
    tree = build_tree(drawing, returns=returns, critic_range=(-9, 9))
    credit = DirectBranchTd(leave_one_out=True, reach=True, mc_backup=True).estimate(tree)
    reach = oracle.reach()
    exact = {place: a * reach[place] for place, a in oracle.advantages(others).items()}
    assert_close(credit.advantages, exact)
    assert_targets(credit.targets, oracle.targets())


def check_refined(drawing, returns):
    oracle = RefinedOracle(drawing, returns)
    credit = RefinedTd().estimate(build_tree(drawing, returns=returns, critic_range=(-9, 9)))
    assert_close(credit.advantages, oracle.advantages())
    assert_targets(credit.targets, oracle.targets())
    assert_close(credit.values, {p: oracle.worth(s) for p, s in enumerate(preorder(drawing))})


def contents(shape, values=(0.1, 0.8)):
    """Every way to fill a shape: leaves fail, succeed or stay open; values alternate by depth."""
    if not shape:
        return [end(0.0), end(1.0), fork(0.3)]
    below = product(*(contents(child, values[::-1]) for child in shape))
    return [fork(values[0], *children) for children in below]


def is_finished(drawing):
    return all(node.is_terminal or node.children for node in preorder(drawing))


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6])
def test_all_small_trees(nodes):
    returns = Returns(prior_strength=0.5)
    for shape in shapes(nodes):
        for drawing in contents(shape):
            check_direct(drawing, returns)
            check_refined(drawing, returns)
            if is_finished(drawing):
                check_mc(drawing, returns)


@pytest.mark.parametrize("nodes", [7])
def test_all_shapes_with_sampled_contents(nodes):
    rng, returns = random.Random(nodes), Returns(prior_strength=2.0)

    def filled(shape):
        if not shape:
            return rng.choice([end(0.0), end(1.0), end(0.25), fork(0.3)])
        return fork(rng.choice([0.1, 0.5, 0.8]), *(filled(child) for child in shape))

    for shape in shapes(nodes):
        for _ in range(4):
            drawing = filled(shape)
            check_direct(drawing, returns)
            check_refined(drawing, returns)


@st.composite
def drawings(draw, *, most_nodes=500):
    return random_sketch(
        random.Random(draw(st.integers(0, 2**32))),
        nodes=draw(st.integers(2, most_nodes)),
        eagerness=draw(st.sampled_from([0.0, 0.3, 0.6, 0.9, 0.99])),
        shaping=draw(st.sampled_from([0.0, 0.125])),
    )


@st.composite
def return_rules(draw):
    return Returns(
        discount=draw(st.sampled_from([1.0, 0.875, 0.5])),
        step_weight=draw(st.sampled_from([0.0, 1.0, -0.5])),
        prior_strength=draw(st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0])),
    )


@settings(max_examples=60, deadline=None)
@given(drawing=drawings(), returns=return_rules())
def test_random_trees(drawing, returns):
    check_direct(drawing, returns)
    check_refined(drawing, returns)


@settings(max_examples=40, deadline=None)
@given(drawing=drawings(most_nodes=200), returns=return_rules())
def test_random_finished_trees(drawing, returns):
    check_mc(finished(drawing), returns)


def finished(drawing):
    """The same drawing with every open leaf ended."""
    if drawing.children:
        return fork(drawing.value, *map(finished, drawing.children), duration=drawing.duration)
    return end(drawing.outcome or 0.0, duration=drawing.duration)
