"""Slime's command-line flags at one revision, shipped as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import Any

from focus.errors import SchemaError

__all__ = ("FlagTable", "ReadFlag", "load_table")

_SCHEMA = "focus.slime-flags/1"


@dataclass(frozen=True, slots=True)
class ReadFlag:
    """A flag whose value FOCUS looks at.

    Attributes:
        name: attribute of Slime's namespace.
        default: its value when the flag is absent.
        type: how one word is read; "" for flags without a value.
        set: its value when a flag without a value is present.
    """

    name: str
    default: Any
    type: str = ""
    set: Any = None


@dataclass(frozen=True, slots=True)
class FlagTable:
    """Every flag that Slime and its Megatron know.

    Attributes:
        revision, date: Slime's.
        values: words that each flag takes: "0", "1", or "+" and "*" for several.
        newer: flags of later revisions, with what to know about them.
        passed_on: beginnings of flags that other parsers read, not listed here.
        read: flags that FOCUS looks at.
    """

    revision: str
    date: str
    values: Mapping[str, str]
    newer: Mapping[str, str]
    passed_on: tuple[str, ...]
    read: Mapping[str, ReadFlag]

    def knows(self, flag: str) -> bool:
        """Whether some parser of Slime reads this flag."""
        return flag in self.values or flag.startswith(self.passed_on)

    def nearest(self, flag: str) -> str | None:
        """The known flag that a misspelt one looks most like, if any does."""
        close = get_close_matches(flag, self.values, n=1, cutoff=0.75)
        return close[0] if close else None


def load_table() -> FlagTable:
    """The shipped table.

    Raises:
        SchemaError: it is damaged.
    """
    data = json.loads(resources.files(__package__).joinpath("flags.json").read_bytes())
    if data["schema"] != _SCHEMA:
        raise SchemaError(f"flags.json holds {data['schema']!r}, this reader knows {_SCHEMA!r}")
    values = {flag: count for count, flags in data["values"].items() for flag in flags}
    values |= {flag: entry["values"] for flag, entry in data["newer"].items()}
    return FlagTable(
        revision=data["slime"]["revision"],
        date=data["slime"]["date"],
        values=values,
        newer={flag: entry["note"] for flag, entry in data["newer"].items()},
        passed_on=tuple(data["passed_on"]),
        read={flag: ReadFlag(**entry) for flag, entry in data["read"].items()},
    )
