"""Every estimator against a second definition, written recursively in exact fractions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.promises.oracles import all_small
from focus.testing.exact_credit import (
    deep_recursion,
    direct_gap,
    is_finished,
    lambda_gap,
    mc_gap,
    refined_gap,
)
from focus.testing.trees import Sketch, end, random_sketch
from focus.tree import Returns

TOLERANCE = 1e-12


@pytest.fixture(autouse=True)
def _deep() -> Iterator[None]:
    with deep_recursion():
        yield


def test_all_small_trees() -> None:
    for drawing, returns in all_small(6):
        assert direct_gap(drawing, returns) <= TOLERANCE
        assert refined_gap(drawing, returns) <= TOLERANCE
        assert lambda_gap(drawing, returns) <= TOLERANCE
        if is_finished(drawing):
            assert mc_gap(drawing, returns) <= TOLERANCE


@st.composite
def drawings(draw: st.DrawFn, *, most_nodes: int = 500) -> Sketch:
    return random_sketch(
        random.Random(draw(st.integers(0, 2**32))),
        nodes=draw(st.integers(2, most_nodes)),
        eagerness=draw(st.sampled_from([0.0, 0.3, 0.6, 0.9, 0.99])),
        shaping=draw(st.sampled_from([0.0, 0.125])),
    )


@st.composite
def return_rules(draw: st.DrawFn) -> Returns:
    return Returns(
        discount=draw(st.sampled_from([1.0, 0.875, 0.5])),
        step_weight=draw(st.sampled_from([0.0, 1.0, -0.5])),
        prior_strength=draw(st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0])),
    )


@settings(max_examples=60, deadline=None)
@given(drawing=drawings(), returns=return_rules())
def test_random_trees(drawing: Sketch, returns: Returns) -> None:
    assert direct_gap(drawing, returns) <= TOLERANCE
    assert refined_gap(drawing, returns) <= TOLERANCE
    assert lambda_gap(drawing, returns) <= TOLERANCE


@settings(max_examples=40, deadline=None)
@given(drawing=drawings(most_nodes=200), returns=return_rules())
def test_random_finished_trees(drawing: Sketch, returns: Returns) -> None:
    assert mc_gap(finished(drawing), returns) <= TOLERANCE


def finished(drawing: Sketch) -> Sketch:
    """The same drawing with every open leaf ended."""
    if drawing.children:
        return replace(drawing, children=tuple(map(finished, drawing.children)), launched=False)
    return end(drawing.outcome or 0.0, duration=drawing.duration)
