"""The same trees under several estimators."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.credit import Credit, DirectBranchTd, Grpo, RefinedTd
from focus.credit.comparison import ESTIMATORS, compare, credits_of, estimator_named
from focus.errors import ConfigError, CreditError
from focus.testing.trees import build_tree, chain, end, fork, random_sketch


def trees(seed, count=4):
    rng = random.Random(seed)
    return [build_tree(random_sketch(rng, nodes=rng.randint(2, 20))) for _ in range(count)]


@given(seed=st.integers(0, 999))
def test_every_estimator_credits_a_tree_or_says_why_not(seed):
    estimators = {name: estimator_named(name) for name in ESTIMATORS}
    for tree in trees(seed):
        for name, found in credits_of(tree, estimators).items():
            if isinstance(found, Credit):
                assert found.advantages == estimators[name].estimate(tree).advantages
            else:
                assert isinstance(found, CreditError)


@given(seed=st.integers(0, 999))
def test_the_reference_agrees_with_itself_and_books_close(seed):
    forest = trees(seed)
    estimators = {name: estimator_named(name) for name in ESTIMATORS}
    rows = compare(forest, estimators)
    assert [row.name for row in rows] == list(ESTIMATORS)
    assert rows[0].cosine is None or rows[0].cosine == pytest.approx(1.0)
    assert rows[0].same_sign in (None, 1.0)
    for row in rows:
        assert row.trees + sum(row.refusals.values()) == len(forest)
        assert row.nonzero <= row.edges
        assert row.cosine is None or -1 - 1e-9 <= row.cosine <= 1 + 1e-9


@given(factor=st.floats(0.1, 10), seed=st.integers(0, 99))
def test_scale_changes_size_and_not_direction(factor, seed):
    class Scaled:
        prior_strength = None

        def estimate(self, tree, *, allow_partial=False):
            found = RefinedTd().estimate(tree)
            return Credit(
                estimator="scaled",
                advantages={head: factor * a for head, a in found.advantages.items()},
            )

    plain, scaled = compare(trees(seed), {"plain": RefinedTd(), "scaled": Scaled()})
    if plain.mean_size:
        assert scaled.mean_size == pytest.approx(factor * plain.mean_size)
        assert scaled.spread == pytest.approx(factor * plain.spread)
        assert scaled.cosine == pytest.approx(1.0)


def test_opposite_weights_have_cosine_minus_one():
    flipped = {name: estimator for name, estimator in (("a", RefinedTd()), ("b", _Negated()))}
    row = compare([build_tree(fork(0.5, end(1.0), end(0.0)))], flipped)[1]
    assert math.isclose(row.cosine, -1.0)
    assert row.same_sign == 0.0


class _Negated:
    prior_strength = None

    def estimate(self, tree, *, allow_partial=False):
        found = RefinedTd().estimate(tree)
        return Credit(estimator="n", advantages={h: -a for h, a in found.advantages.items()})


def test_refusals_are_counted_by_reason():
    forked = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
    flat = build_tree(fork(0.5, chain([0.5], outcome=1.0), end(0.0)))
    row = compare([forked, flat, forked], {"td": DirectBranchTd(), "grpo": Grpo()})[1]
    assert (row.trees, sum(row.refusals.values())) == (1, 2)
    assert "node 1 has 2 children" in next(iter(row.refusals))


@pytest.mark.parametrize(
    ("name", "options", "culprit"),
    [
        ("nonsense", {}, "known: direct-branch"),
        ("grpo", {"decay": 1}, "its options: scale"),
        ("lambda", {"decay": 2}, "decay"),
        ("lambda", {"decay": "much"}, "decay|'<='"),
    ],
)
def test_what_cannot_be_made_is_named(name, options, culprit):
    with pytest.raises(ConfigError, match=culprit):
        estimator_named(name, options)


def test_nothing_to_compare():
    with pytest.raises(ConfigError, match="at least one"):
        compare([], {})
