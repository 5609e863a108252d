"""Figures stay short and keep their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from focus.viz.glyphs import ASCII, UNICODE
from focus.viz.numbers import count, duration, sparkline

UNITS = {"k": 1e3, "M": 1e6, "B": 1e9}


@given(st.integers(0, 999_000_000_000))
def test_a_count_is_short_and_within_half_a_percent(number: int) -> None:
    shown = count(number)
    scale = UNITS.get(shown[-1], 1.0)
    value = float(shown.rstrip("kMB")) * scale
    assert len(shown) <= 5
    assert abs(value - number) <= 0.005 * number


@given(st.floats(0, 1e7))
def test_a_duration_is_never_more_than_two_units(seconds: float) -> None:
    assert 1 <= sum(character.isalpha() for character in duration(seconds).replace("min", "m")) <= 2


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=20))
def test_a_sparkline_has_a_place_for_every_value(values: list[float | None]) -> None:
    for glyphs in (UNICODE, ASCII):
        line = sparkline(values, bars=glyphs.bars)
        assert len(line) in (0, len(values))
        known = [value for value in values if value is not None]
        if known and max(known) > min(known):
            assert line[values.index(max(known))] == glyphs.bars[-1]
            assert line[values.index(min(known))] == glyphs.bars[0]
