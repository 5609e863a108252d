"""The limits bench: shares of idle slots, and what its lines say."""

import doctest

import pytest
from bench.overhead import bubble
from bench.overhead.limits import limit_figures
from hypothesis import given
from hypothesis import strategies as st


def test_examples():
    assert doctest.testmod(bubble).failed == 0


@given(slots=st.integers(1, 5), waves=st.integers(3, 6), gap=st.sampled_from([0.0, 0.5, 2.0]))
def test_idle_slots_are_counted_between_full_houses(slots, waves, gap):
    """Each slot is asked again `gap` after its reply: idle for gap of each 2 + gap seconds."""
    busy = [(wave * (2 + gap), wave * (2 + gap) + 2) for wave in range(waves) for _ in range(slots)]
    counted = (waves - 2) * 2 / ((waves - 2) * 2 + (waves - 1) * gap) if gap else 1.0
    assert bubble.idle_share(busy, slots=slots) == pytest.approx(1 - counted)


def test_a_server_in_another_process_is_kept_busy():
    figure = bubble.bubble(slots=4, segments=4, goal=0.01, service_s=0.05)
    assert 0 <= figure.value < 1
    assert figure.id == "P10"
    assert "4 slots, 0.05 s a segment" in figure.what


@pytest.mark.full
def test_limits_are_measured():
    figures = list(limit_figures(prompts=1))
    assert {figure.id for figure in figures} == {"P9", "P10"}
    by_what = {figure.what.split(":")[0] + figure.what[-12:]: figure for figure in figures}
    assert len(by_what) == len(figures)
    assert all(figure.met for figure in figures if figure.what.startswith("eta_critic"))
