"""Training settings out of what a user typed: preset, file, options, ``--set``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from focus.errors import ConfigError

__all__ = ("overrides",)


def overrides(pairs: Sequence[str]) -> dict[str, Any]:
    """Nested values of ``name=value`` pairs; values read as TOML, else as text.

    Raises:
        ConfigError: a pair without ``=``, or a name used both as a value and as a table.

    >>> overrides(["rounds=4", "actor.learning_rate=1e-4", "model=smollm2"])
    {'rounds': 4, 'actor': {'learning_rate': 0.0001}, 'model': 'smollm2'}
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not all(name.split(".")):
            raise ConfigError(f"--set wants name=value, such as actor.epochs=2, got {pair!r}")
        _put(values, name.split("."), _value(text.strip()), pair)
    return values


def _put(values: dict[str, Any], names: Sequence[str], value: Any, pair: str) -> None:
    for name in names[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, Mapping):
            raise ConfigError(f"--set {pair}: {name!r} was given a value before")
    values[names[-1]] = value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
