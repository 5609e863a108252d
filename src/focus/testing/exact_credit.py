"""Credit a second time: straight from the definitions, recursively, in exact fractions.

    oracle = DirectOracle(sketch, returns)
    worst = largest_gap(DirectBranchTd().estimate(tree).advantages, oracle.advantages(everyone))

Nodes are named by their place in preorder, as `focus.testing.trees.build_tree` does. The
oracle, unlike the estimators, recurses to the depth of the tree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction

from focus.credit import DirectBranchTd, LambdaTd, RefinedTd
from focus.credit.base import Target
from focus.testing.trees import Sketch, build_tree, preorder
from focus.tree import Returns

__all__ = (
    "DirectOracle",
    "LambdaOracle",
    "Oracle",
    "RefinedOracle",
    "deep_recursion",
    "direct_gap",
    "earlier",
    "everyone",
    "is_finished",
    "lambda_gap",
    "largest_gap",
    "mc_gap",
    "others",
    "refined_gap",
    "target_gap",
)

Numbers = dict[int, Fraction]
Rivals = Callable[[int, int], Sequence[int]]
"""Which branches stand in the baseline of branch i of K."""

_RANGE = (-9.0, 9.0)


class Oracle:
    """What the two definitions share."""

    def __init__(self, root: Sketch, returns: Returns) -> None:
        self.root = root
        self._gamma = Fraction(returns.discount)
        self._beta = Fraction(returns.step_weight)
        self._kappa = Fraction(returns.prior_strength)

    def across(self, child: Sketch, worth: Fraction) -> Fraction:
        """Return of the edge into `child`, which is worth `worth`."""
        reward = Fraction(child.outcome or 0) + self._beta * Fraction(child.step_reward)
        return reward + self._gamma**child.duration * worth

    def blend(self, node: Sketch, sample: Sequence[Fraction]) -> Fraction:
        """Critic value and sample mean, by κ."""
        share = self._kappa / (self._kappa + len(sample))
        mean = sum(sample, Fraction(0)) / len(sample) if sample else Fraction(0)
        return share * Fraction(node.value or 0) + (1 - share) * mean

    def by_place(self, give: Callable[[Sketch, int], Fraction]) -> Numbers:
        """Collects ``give(parent, position)`` over all edges, by place of the edge's head."""
        found: Numbers = {}
        places = iter(range(1, sys.maxsize))

        def visit(node: Sketch) -> None:
            for position, child in enumerate(node.children):
                found[next(places)] = give(node, position)
                visit(child)

        visit(self.root)
        return found


class DirectOracle(Oracle):
    """Each direct branch counts once.

    Args:
        root: the drawing.
        returns: γ, β, κ.
        mc_backup: back up plain means instead of blends.
    """

    def __init__(self, root: Sketch, returns: Returns, *, mc_backup: bool = False) -> None:
        super().__init__(root, returns)
        self._mc_backup = mc_backup
        self._known: dict[int, Fraction] = {}

    def worth(self, node: Sketch) -> Fraction:
        if node.is_terminal:
            return Fraction(0)
        if id(node) not in self._known:
            sample = self.sample(node)
            self._known[id(node)] = (
                sum(sample, Fraction(0)) / len(sample)
                if self._mc_backup
                else self.blend(node, sample)
            )
        return self._known[id(node)]

    def sample(self, node: Sketch) -> list[Fraction]:
        return [self.across(child, self.worth(child)) for child in node.children]

    def values(self) -> Numbers:
        return {place: self.worth(node) for place, node in enumerate(preorder(self.root))}

    def advantages(self, rivals: Rivals) -> Numbers:
        def give(node: Sketch, i: int) -> Fraction:
            sample = self.sample(node)
            return sample[i] - self.blend(node, [sample[j] for j in rivals(i, len(sample))])

        return self.by_place(give)

    def reach(self) -> Numbers:
        """Share of the tree's rollouts that pass each edge, by its head."""
        shares = {0: Fraction(1)}
        numbers = {id(node): place for place, node in enumerate(preorder(self.root))}

        def give(node: Sketch, i: int) -> Fraction:
            child = node.children[i]
            shares[numbers[id(child)]] = shares[numbers[id(node)]] / len(node.children)
            return shares[numbers[id(child)]]

        return self.by_place(give)

    def targets(self) -> dict[int, tuple[Fraction, int]]:
        return {
            place: (sum(self.sample(node), Fraction(0)) / len(node.children), len(node.children))
            for place, node in enumerate(preorder(self.root))
            if node.children
        }


class RefinedOracle(Oracle):
    """Whole outcomes of the rollouts that passed."""

    def __init__(self, root: Sketch, returns: Returns) -> None:
        super().__init__(root, returns)
        self._known: dict[int, Fraction | None] = {}

    def outcome_of_birth(self, node: Sketch) -> Fraction | None:
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

    def sample(self, node: Sketch) -> list[Fraction]:
        followed = [(child, self.outcome_of_birth(child)) for child in node.children]
        return [self.across(child, below) for child, below in followed if below is not None]

    def worth(self, node: Sketch) -> Fraction:
        return Fraction(0) if node.is_terminal else self.blend(node, self.sample(node))

    def values(self) -> Numbers:
        return {place: self.worth(node) for place, node in enumerate(preorder(self.root))}

    def advantages(self) -> Numbers:
        def give(node: Sketch, i: int) -> Fraction:
            child = node.children[i]
            return self.across(child, self.worth(child)) - self.worth(node)

        return self.by_place(give)

    def targets(self) -> dict[int, tuple[Fraction, int]]:
        samples = {
            place: self.sample(node)
            for place, node in enumerate(preorder(self.root))
            if not node.is_terminal
        }
        return {p: (sum(s, Fraction(0)) / len(s), len(s)) for p, s in samples.items() if s}


class LambdaOracle(RefinedOracle):
    """λ-returns over the branches; targets are whole outcomes."""

    def __init__(self, root: Sketch, returns: Returns, *, decay: float) -> None:
        super().__init__(root, returns)
        self._decay = Fraction(decay)
        self._reached: dict[int, Fraction] = {}

    def ahead(self, node: Sketch) -> Fraction:
        """(1 − λ)·V + λ·Ḡ; V at an unfinished leaf, 0 at a terminal."""
        if node.is_terminal:
            return Fraction(0)
        if id(node) not in self._reached:
            value, over = Fraction(node.value or 0), self.over(node)
            mean = sum(over, Fraction(0)) / len(over) if over else value
            self._reached[id(node)] = value + self._decay * (mean - value)
        return self._reached[id(node)]

    def over(self, node: Sketch) -> list[Fraction]:
        """c of each edge below."""
        return [self.across(child, self.ahead(child)) for child in node.children]

    def advantages(self) -> Numbers:
        def give(node: Sketch, i: int) -> Fraction:
            over = self.over(node)
            return over[i] - self.blend(node, [*over[:i], *over[i + 1 :]])

        return self.by_place(give)


def everyone(i: int, count: int) -> Sequence[int]:
    """All branches."""
    return range(count)


def others(i: int, count: int) -> Sequence[int]:
    """All branches but the i-th."""
    return [j for j in range(count) if j != i]


def earlier(i: int, count: int) -> Sequence[int]:
    """The branches before the i-th."""
    return range(i)


def largest_gap(numbers: Mapping[int, float], exact: Mapping[int, Fraction]) -> float:
    """Largest absolute difference; infinite where one side has a node that the other lacks.

    >>> largest_gap({1: 0.5}, {1: Fraction(1, 2)}), largest_gap({}, {1: Fraction(1)})
    (0.0, inf)
    """
    if numbers.keys() != exact.keys():
        return float("inf")
    gaps = (abs(Fraction(number) - exact[place]) for place, number in numbers.items())
    return float(max(gaps, default=Fraction(0)))


def target_gap(targets: Mapping[int, Target], exact: Mapping[int, tuple[Fraction, int]]) -> float:
    """`largest_gap` of critic targets; infinite where counts differ."""
    if {p: t.count for p, t in targets.items()} != {p: n for p, (_, n) in exact.items()}:
        return float("inf")
    values = {p: t.value for p, t in targets.items()}
    return largest_gap(values, {p: v for p, (v, _) in exact.items()})


def direct_gap(drawing: Sketch, returns: Returns) -> float:
    """Largest difference of `DirectBranchTd`, with each of its baselines, from its definition."""
    tree = build_tree(drawing, returns=returns, critic_range=_RANGE)
    oracle = DirectOracle(drawing, returns)
    credit = DirectBranchTd().estimate(tree)
    gaps = [
        largest_gap(credit.advantages, oracle.advantages(everyone)),
        target_gap(credit.targets, oracle.targets()),
        largest_gap(credit.values, oracle.values()),
    ]
    for estimator, rivals in (
        (DirectBranchTd(leave_one_out=True), others),
        (DirectBranchTd(baseline="earlier"), earlier),
    ):
        gaps.append(largest_gap(estimator.estimate(tree).advantages, oracle.advantages(rivals)))
    return max(gaps)


def mc_gap(drawing: Sketch, returns: Returns) -> float:
    """The same for the unbiased variant; every leaf must be finished."""
    oracle = DirectOracle(drawing, returns, mc_backup=True)
    tree = build_tree(drawing, returns=returns, critic_range=_RANGE)
    credit = DirectBranchTd(leave_one_out=True, reach=True, mc_backup=True).estimate(tree)
    reach = oracle.reach()
    exact = {place: a * reach[place] for place, a in oracle.advantages(others).items()}
    return max(largest_gap(credit.advantages, exact), target_gap(credit.targets, oracle.targets()))


def refined_gap(drawing: Sketch, returns: Returns) -> float:
    """The same for `RefinedTd`."""
    oracle = RefinedOracle(drawing, returns)
    credit = RefinedTd().estimate(build_tree(drawing, returns=returns, critic_range=_RANGE))
    return max(
        largest_gap(credit.advantages, oracle.advantages()),
        target_gap(credit.targets, oracle.targets()),
        largest_gap(credit.values, oracle.values()),
    )


def lambda_gap(drawing: Sketch, returns: Returns) -> float:
    """The same for `LambdaTd`, with λ = 1/2 and at both ends."""
    tree = build_tree(drawing, returns=returns, critic_range=_RANGE)
    gaps = []
    for decay in (0.0, 0.5, 1.0):
        oracle = LambdaOracle(drawing, returns, decay=decay)
        credit = LambdaTd(decay=decay).estimate(tree)
        gaps.append(largest_gap(credit.advantages, oracle.advantages()))
        gaps.append(target_gap(credit.targets, oracle.targets()))
    return max(gaps)


def is_finished(drawing: Sketch) -> bool:
    """Whether no leaf is open."""
    return all(node.is_terminal or node.children for node in preorder(drawing))


@contextmanager
def deep_recursion(limit: int = 20_000) -> Iterator[None]:
    """Room for drawings of some thousand nodes in a chain."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, before))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
