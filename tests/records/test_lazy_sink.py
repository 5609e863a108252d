"""Importing the sink's package costs nothing and loads nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import focus.integrations
from focus.records.jsonl import JsonlDirectory

PROBE = """
import sys
import focus.integrations
assert "focus.records.jsonl" not in sys.modules
from focus.integrations import JsonlDirectory
JsonlDirectory("never-made")
heavy = {"numpy", "httpx", "asyncio", "anyio", "rich", "typer", "torch", "transformers"}
print(sorted(heavy & set(sys.modules)))
"""


def test_the_sink_loads_on_first_use_and_brings_nothing_heavy() -> None:
    found = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True)
    assert (found.stdout.strip(), found.stderr) == ("[]", "")


def test_it_is_the_one_of_records() -> None:
    assert focus.integrations.JsonlDirectory is JsonlDirectory
    assert "JsonlDirectory" in dir(focus.integrations)
    name = "nothing_like_it"
    with pytest.raises(AttributeError, match=name):
        getattr(focus.integrations, name)
