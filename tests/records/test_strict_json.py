"""What does not come back equal is refused, in both directions."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import RecordError, SchemaError
from focus.records.strict_json import Fields, dumps, loads, require_json

from .strategies import finite, json_values

HALF = "\ud83d"


@given(json_values)
def test_plain_values_round_trip_on_one_ascii_line(value: Any) -> None:
    data = dumps(value, what="value")
    assert loads(data, where="value") == value
    assert data.isascii()
    assert b"\n" not in data


@given(finite)
def test_floats_keep_their_bits(value: float) -> None:
    again = loads(dumps(value, what="value"), where="value")
    assert math.copysign(1, again) == math.copysign(1, value)
    assert again == value


@pytest.mark.parametrize("text", ["\0", "\x85", "\u2028", "\u2029", "\ufeff", "\x0b\x1c", "😀\n"])
def test_separators_and_marks_round_trip(text: str) -> None:
    assert loads(dumps([text], what="text"), where="text") == [text]


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        HALF,
        {HALF: 1},
        "\ud83d\ude00",
        b"bytes",
        {1, 2},
        object(),
        {("a",): 1},
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(RecordError, match="thing cannot be stored as JSON"):
        dumps(value, what="thing")


def test_endless_nesting_is_refused_both_ways() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(RecordError):
        dumps(cycle, what="cycle")
    with pytest.raises(SchemaError, match="too deep"):
        loads(b"[" * 100_000, where="deep")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"[-1e999]",
        b'{"a": 1, "a": 1}',
        b'{"x": {"a": 1, "b": 2, "a": 3}}',
        b'"\\ud83d"',
        b'"\\uDE00"',
        b'"\\ud83d" ',
        b'"\xed\xa0\xbd"',
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"[1,]",
        b"9" * 5000,
        b"\x80\x04\x95.",
    ],
    ids=lambda data: repr(data[:16]),
)
def test_damaged_or_lax_json_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(SchemaError, match="line 3: not readable JSON"):
        loads(data, where="line 3")


def test_an_escaped_pair_is_one_character() -> None:
    assert loads(b'"\\ud83d\\ude00"', where="text") == "😀"


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_typed_error(data: bytes) -> None:
    try:
        value = loads(data, where="bytes")
    except SchemaError:
        return
    assert loads(dumps(value, what="value"), where="value") == value


@given(json_values)
def test_free_form_json_passes(value: Any) -> None:
    require_json(value, where="label")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ((1, 2), "label: a tuple"),
        ({"a": [0, (1,)]}, r"label\.a\[1\]: a tuple"),
        ({1: 2}, "label: key 1"),
        ({"a": math.nan}, r"label\.a: nan"),
        ([object()], r"label\[0\]: a object"),
    ],
)
def test_what_would_come_back_changed_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(RecordError, match=place):
        require_json(value, where="label")


def test_a_cycle_in_free_form_data_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(RecordError, match="cycle"):
        require_json(cycle, where="label")


READERS = ("text", "flag", "integer", "number", "items", "object", "integers", "numbers", "texts")
ACCEPTED = {
    "text": ("", "a"),
    "flag": (True, False),
    "integer": (0, 3),
    "number": (0, -1.5),
    "items": ([],),
    "object": ({},),
    "integers": ([], [0, 1]),
    "numbers": ([], [0, -1.5]),
    "texts": ([], ["a"]),
}
SAMPLES = ("a", True, 3, -1, -1.5, None, [], {}, [True], [-1], [1.5], ["a"], [None], [[1]])


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_takes_its_own_type_only(reader: str) -> None:
    for value in ACCEPTED[reader]:
        getattr(Fields({"x": value}, where="record"), reader)("x")
    for value in (None, *SAMPLES):
        plain = any(_same(value, good) for good in ACCEPTED[reader]) or (
            (reader == "number" and type(value) in (int, float))
            or (reader == "items" and type(value) is list)
            or (reader == "numbers" and isinstance(value, list) and _all(value, int, float))
            or (reader == "texts" and isinstance(value, list) and _all(value, str))
        )
        if not plain:
            with pytest.raises(SchemaError, match=r"record\.x"):
                getattr(Fields({"x": value}, where="record"), reader)("x")


def _same(value: object, other: object) -> bool:
    return type(value) is type(other) and json.dumps(value) == json.dumps(other)


def _all(values: list[Any], *kinds: type) -> bool:
    return all(type(value) in kinds for value in values)


def test_missing_and_unknown_fields_are_named() -> None:
    fields = Fields({"b": 1, "c": 2}, where="record")
    with pytest.raises(SchemaError, match="'a' is missing"):
        fields.text("a")
    fields.integer("b")
    with pytest.raises(SchemaError, match=r"unknown fields \['c'\]"):
        fields.done()


@pytest.mark.parametrize("value", [[], "text", 3, None])
def test_only_objects_have_fields(value: object) -> None:
    with pytest.raises(SchemaError, match="expected an object"):
        Fields(value, where="record")


def test_an_integer_too_large_for_a_float_is_no_number() -> None:
    with pytest.raises(SchemaError, match="too large"):
        Fields({"x": 10**400}, where="record").number("x")
