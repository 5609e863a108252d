"""What ``--set`` means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.cli.settings import overrides
from focus.errors import ConfigError
from focus.training.settings import TrainSettings, settings_from

plain = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)


@given(plain | st.booleans() | st.lists(st.integers(0, 9)))
def test_plain_values_come_back_as_they_are(value: Any) -> None:
    assert overrides([f"a.b={json.dumps(value)}"]) == {"a": {"b": value}}


@given(st.from_regex(r"[a-z][a-z0-9/_:.-]*", fullmatch=True))
def test_words_are_text(word: str) -> None:
    found = overrides([f"model={word}"])["model"]
    assert found == word or word in ("true", "false", "inf", "nan")


def test_pairs_reach_the_settings() -> None:
    changed = settings_from(overrides(["rounds=3", "actor.betas=[0.8, 0.9]", "task=gym:ab"]))
    assert (changed.rounds, changed.actor.betas, changed.task) == (3, (0.8, 0.9), "gym:ab")
    assert changed.critic == TrainSettings().critic


@pytest.mark.parametrize("pair", ["rounds", "=3", "a..b=1", ".a=1"])
def test_a_pair_that_is_none_is_named(pair: str) -> None:
    with pytest.raises(ConfigError, match="name=value"):
        overrides([pair])


def test_a_value_is_no_table() -> None:
    with pytest.raises(ConfigError, match="'actor' was given a value before"):
        overrides(["actor=1", "actor.epochs=2"])
