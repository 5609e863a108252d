"""A step that goes too far is taken back, in part or whole."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from focus.integrations.local.trust_region import TrustRegion, divergence

Size = Callable[[float], float]


def taken(step: float, most: float, nats: Size) -> tuple[float, float]:
    """Where a step of that length ends, and what is said to be kept of it."""
    weight = torch.nn.Parameter(torch.tensor([0.0], dtype=torch.float64))
    frozen = torch.nn.Parameter(torch.tensor([5.0]), requires_grad=False)
    region = TrustRegion([weight, frozen], most)
    with torch.no_grad():
        weight += step
    kept = region.shorten(lambda: nats(weight.item()))
    assert frozen.item() == 5.0
    return weight.item(), kept


@given(
    step=st.floats(1e-3, 1e3),
    most=st.floats(1e-8, 1e2),
    power=st.sampled_from([1.0, 2.0, 4.0]),
)
def test_what_is_kept_is_within_bounds_and_in_the_steps_direction(
    step: float, most: float, power: float
) -> None:
    """Also where the square law does not hold."""

    def nats(length: float) -> float:
        return abs(length) ** power

    length, kept = taken(step, most, nats)
    assert nats(length) <= most
    assert length == pytest.approx(kept * step, rel=1e-6, abs=1e-12)
    assert 0 <= kept <= 1
    assert (kept == 1.0) == (nats(step) <= most)


def test_where_the_square_law_holds_one_guess_is_enough() -> None:
    asked: list[float] = []

    def nats(length: float) -> float:
        asked.append(length)
        return length**2

    assert taken(10.0, 1.0, nats)[0] == pytest.approx(0.9)
    assert len(asked) == 2


@pytest.mark.parametrize("nats", [math.inf, math.nan, 1.0])
def test_a_step_that_no_share_makes_short_is_taken_back_whole(nats: float) -> None:
    """To the bit: a policy that was sane stays so."""
    assert taken(3.0, 1e-3, lambda length: nats if length else 0.0) == (0.0, 0.0)


@given(st.lists(st.tuples(st.floats(-20, -1e-3), st.floats(-20, -1e-3)), max_size=8))
def test_a_divergence_is_never_negative(pairs: list[tuple[float, float]]) -> None:
    before, after = (
        torch.tensor(column) for column in (list(zip(*pairs, strict=True)) or [[], []])
    )
    assert divergence(before, before) == 0.0
    assert divergence(before, after) >= 0.0
