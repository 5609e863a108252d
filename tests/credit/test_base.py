"""What estimators share: numbers read once per tree, and kept by name."""

from __future__ import annotations

import contextlib
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.credit import DirectBranchTd
from focus.credit.base import (
    Columns,
    Credit,
    Target,
    edge_terms,
    is_trained,
)
from focus.credit.comparison import ESTIMATORS
from focus.credit.forks import Forks
from focus.errors import CreditError
from focus.testing.trees import build_tree, end, fork, random_sketch
from focus.tree import Returns

laws = st.builds(
    Returns,
    discount=st.sampled_from([1.0, 0.9, 0.5]),
    step_weight=st.sampled_from([0.0, 1.0, -0.5]),
)


@given(seed=st.integers(0, 10_000), returns=laws, successor=st.floats(-2, 2))
def test_terms_read_once_give_the_return_over_each_edge(seed, returns, successor):
    tree = build_tree(random_sketch(random.Random(seed), nodes=12, shaping=0.5))
    gained, carried = edge_terms(tree, returns)
    assert len(gained) == len(carried) == len(tree)
    for node in tree.edges():
        over = returns.backed_up(node.incoming, successor)
        assert gained[node.id] + carried[node.id] * successor == over
    assert Forks.of(tree).trained == [node.id for node in tree if is_trained(node)]


@given(st.dictionaries(st.integers(0, 9), st.floats(-1, 1), max_size=5))
def test_columns_are_the_rows_they_stand_for(numbers):
    doubled = [2 * numbers.get(node, math.nan) for node in range(10)]
    rows = {node: {"one": own, "two": 2 * own} for node, own in numbers.items()}
    found = Columns(numbers, {"one": numbers, "two": doubled}, row=dict)
    assert found == rows
    assert dict(found) == rows
    assert list(found) == list(numbers)
    assert len(found) == len(numbers)
    assert list(found.column("two")) == [row["two"] for row in rows.values()]
    assert all(node in found for node in numbers)
    assert 10 not in found


def test_a_node_without_a_row_has_none_though_a_column_has_its_number():
    with pytest.raises(KeyError, match="0"):
        Columns({1: None}, {"return": [0.5, 0.25]}, row=dict)[0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["advantage", "value", "target"])
def test_a_number_that_is_not_finite_is_refused_by_node_and_name(name, bad):
    numbers = {"advantages": {1: 0.5}, "values": {1: 0.5}, "targets": {1: Target(0.5, 1)}}
    numbers[f"{name}s"] = {
        1: numbers[f"{name}s"][1],
        7: Target(bad, 1) if name == "target" else bad,
    }
    with pytest.raises(CreditError, match=f"^a test: node 7: {name} is {bad}"):
        Credit(estimator="a test", **numbers)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_return_that_is_not_finite_is_refused_by_the_edge(bad):
    tree = build_tree(fork(0.5, end(0.0), end(bad), end(1.0)))
    with pytest.raises(CreditError, match=f"node 2: the return over its edge is {bad}"):
        DirectBranchTd().estimate(tree)


@pytest.mark.parametrize("estimator", [make() for make in ESTIMATORS.values()])
def test_returns_that_overflow_are_refused_by_every_estimator(estimator):
    huge = end(1e308, step_reward=1e308)
    probes = [end(1e308, phase=1), end(1e308, phase=1)]
    tree = build_tree(fork(0.5, huge, end(-1e308, step_reward=-1e308), *probes))
    with pytest.raises(CreditError, match="node 2: the return over its edge is -inf"):
        estimator.estimate(tree)
    tree = build_tree(fork(0.5, end(1e308), end(1e308), end(1e308), end(1e308, phase=1)))
    with contextlib.suppress(CreditError):
        credit = estimator.estimate(tree)
        assert all(map(math.isfinite, credit.advantages.values()))
