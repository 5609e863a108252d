"""No text can act on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.viz.text import clipped, visible

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=80)


@given(ANY_TEXT)
def test_shown_text_is_printable_and_says_where_lines_ended(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert shown.count("⏎") >= text.count("\n")
    shown.encode("utf-8")


@given(ANY_TEXT)
def test_ascii_text_is_ascii(text: str) -> None:
    assert all(" " <= character <= "~" for character in visible(text, ascii_only=True))


@given(ANY_TEXT)
def test_kept_lines_are_the_only_line_breaks(text: str) -> None:
    assert visible(text, keep_lines=True).count("\n") == text.count("\n")


@given(st.text(st.characters(categories=("L", "N", "P", "S")), max_size=80))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("character", ["\x1b", "\r", "\x08", "\x9b", "\u202e", "\u2066", "\ufeff"])
def test_what_moves_colours_or_reorders_is_replaced(character: str) -> None:
    assert character not in visible(f"a{character}b")


@given(st.text(max_size=30), st.integers(1, 20))
def test_clipping_keeps_the_start_within_the_width(text: str, most: int) -> None:
    shown = clipped(text, most)
    assert len(shown) <= max(most, 1)
    assert shown == text or text.startswith(shown[:-1])
