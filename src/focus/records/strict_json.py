"""JSON without surprises: what cannot come back equal is refused, both ways.

Python's own reader takes NaN, Infinity, numbers too large for a float and repeated
keys, and it cannot tell two escaped halves of a character from one whole character.
Each of them would turn a stored record into another one without an error.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

from focus.errors import RecordError, SchemaError

__all__ = ("Fields", "dumps", "loads", "require_json")

T = TypeVar("T")


def dumps(value: Any, *, what: str) -> bytes:
    """Compact ASCII JSON of plain values, on one line.

    Args:
        value: dicts with text keys, lists, tuples, text, numbers, booleans, None.
        what: named in errors.

    Raises:
        RecordError: a value is not JSON, not finite, not Unicode, or nested too deep.

    >>> dumps({"text": "a\\u2028b", "value": 0.1}, what="example")
    b'{"text":"a\\\\u2028b","value":0.1}'
    """
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        if "\\ud" in text:
            _refuse_half_characters(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"{what} cannot be stored as JSON: {error}") from error
    return text.encode("ascii")


def loads(data: bytes, *, where: str) -> Any:
    """Parse one JSON value strictly.

    Raises:
        SchemaError: not UTF-8, not JSON, a repeated key, a number that is not finite or
            has too many digits, half a character, or nesting that is too deep.

    >>> loads(b'{"a": 1, "a": 2}', where="example")
    Traceback (most recent call last):
    focus.errors.SchemaError: example: not readable JSON: key 'a' appears twice
    >>> loads(b'{"scores": [0.5, NaN]}', where="example")
    Traceback (most recent call last):
    focus.errors.SchemaError: example: not readable JSON: NaN is not a number of JSON, at scores[1]
    """
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
        if "\\ud" in text or "\\uD" in text:
            _refuse_half_characters(value)
    except RecursionError as error:
        raise SchemaError(f"{where}: not readable JSON: nested too deep") from error
    except ValueError as error:
        place = _place_of_no_number(data)
        raise SchemaError(f"{where}: not readable JSON: {error}{place}") from error
    return value


def _refuse_half_characters(value: Any) -> None:
    """Raise for a lone surrogate, which no UTF-8 reader accepts."""
    json.dumps(value, ensure_ascii=False).encode("utf-8")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"key {twice!r} appears twice")
    return table


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} does not fit a float")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _place_of_no_number(data: bytes) -> str:
    """Where the first NaN or infinity of damaged JSON stands, e.g. ``, at scores[7]``."""
    try:
        lax = json.loads(data)
        return next((f", at {place}" for place in _places(lax, "") if place), "")
    except (ValueError, RecursionError):
        return ""


def _places(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _places(below, f"{place}.{key[:40]}".lstrip("."))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _places(below, f"{place}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield place


def require_json(value: Any, *, where: str) -> None:
    """Check that free-form data comes back equal from JSON.

    Raises:
        RecordError: naming the first place that would not: a tuple, a key that is not
            text, NaN, or an object of another type.

    >>> require_json({"level": [1, None]}, where="metadata")
    >>> require_json({"pair": (1, 2)}, where="metadata")
    Traceback (most recent call last):
    focus.errors.RecordError: metadata.pair: a tuple is not JSON
    """
    try:
        _require_json(value, where)
    except RecursionError as error:
        raise RecordError(f"{where}: nested too deep, or a cycle") from error


def _require_json(value: Any, place: str) -> None:
    if isinstance(value, dict):
        for key, below in value.items():
            if type(key) is not str:
                raise RecordError(f"{place}: key {key!r} is not text")
            _require_json(below, f"{place}.{key}")
    elif isinstance(value, list):
        for index, below in enumerate(value):
            _require_json(below, f"{place}[{index}]")
    elif type(value) is float:
        if not math.isfinite(value):
            raise RecordError(f"{place}: {value} is not a number of JSON")
    elif value is not None and type(value) not in (bool, int, str):
        raise RecordError(f"{place}: a {type(value).__name__} is not JSON")


class Fields:
    """Reads a JSON object field by field; every type is exact and nothing is left over.

    Raises:
        SchemaError: from each method, naming the place and what stands there.
    """

    def __init__(self, value: Any, *, where: str) -> None:
        if not isinstance(value, dict):
            raise SchemaError(f"{where}: expected an object, found {_shown(value)}")
        self._left: dict[str, Any] = dict(value)
        self.where = where

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def raw(self, name: str) -> Any:
        """The value as it is."""
        if name not in self._left:
            raise SchemaError(f"{self.where}: {name!r} is missing")
        return self._left.pop(name)

    def text(self, name: str) -> str:
        return self._exactly(name, str, "text")

    def flag(self, name: str) -> bool:
        return self._exactly(name, bool, "true or false")

    def integer(self, name: str, *, least: int | None = 0) -> int:
        value = self._exactly(name, int, "a whole number")
        if least is not None and value < least:
            raise SchemaError(f"{self.where}.{name}: {value} is below {least}")
        return value

    def number(self, name: str) -> float:
        return self._number(self.raw(name), name)

    def optional_integer(self, name: str, *, least: int | None = 0) -> int | None:
        return None if self._is_null(name) else self.integer(name, least=least)

    def optional_number(self, name: str) -> float | None:
        return None if self._is_null(name) else self.number(name)

    def optional_text(self, name: str) -> str | None:
        return None if self._is_null(name) else self.text(name)

    def optional_integers(self, name: str) -> tuple[int, ...] | None:
        return None if self._is_null(name) else self.integers(name)

    def optional_numbers(self, name: str) -> tuple[float, ...] | None:
        return None if self._is_null(name) else self.numbers(name)

    def name_or_number(self, name: str) -> int | str:
        """A data set's id."""
        value = self.raw(name)
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise SchemaError(f"{self.where}.{name}: expected an id, found {_shown(value)}")

    def integers(self, name: str) -> tuple[int, ...]:
        """Token ids and the like: whole numbers ≥ 0."""
        values = self.items(name)
        if values and (set(map(type, values)) != {int} or min(values) < 0):
            raise SchemaError(f"{self.where}.{name}: expected whole numbers >= 0 only")
        return tuple(values)

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(self._number(value, name) for value in self.items(name))

    def items(self, name: str) -> list[Any]:
        return self._exactly(name, list, "a list")

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        if not all(type(value) is str for value in values):
            raise SchemaError(f"{self.where}.{name}: expected text values only")
        return tuple(values)

    def object(self, name: str) -> dict[str, Any]:
        return self._exactly(name, dict, "an object")

    def fields(self, name: str) -> Fields:
        """A nested object."""
        return Fields(self.raw(name), where=f"{self.where}.{name}")

    def optional_fields(self, name: str) -> Fields | None:
        return None if self._is_null(name) else self.fields(name)

    def names(self) -> tuple[str, ...]:
        """What is left to read."""
        return tuple(self._left)

    def numbers_by_name(self, name: str) -> dict[str, float]:
        return {key: self._number(value, name) for key, value in self.object(name).items()}

    def text_by_name(self, name: str) -> dict[str, str]:
        table = self.object(name)
        if not all(type(value) is str for value in table.values()):
            raise SchemaError(f"{self.where}.{name}: expected text values only")
        return table

    def rest(self) -> dict[str, Any]:
        """What is left, for another reader."""
        rest, self._left = self._left, {}
        return rest

    def done(self) -> None:
        """Nothing may be left unread: an unknown field has a meaning we would lose."""
        if self._left:
            raise SchemaError(f"{self.where}: unknown fields {sorted(self._left)}")

    def _is_null(self, name: str) -> bool:
        if self._left.get(name, 0) is not None:
            return False
        del self._left[name]
        return True

    def _exactly(self, name: str, kind: type[T], expected: str) -> T:
        value = self.raw(name)
        # `type` and not `isinstance`: True must not pass for 1.
        if type(value) is not kind:
            raise SchemaError(f"{self.where}.{name}: expected {expected}, found {_shown(value)}")
        return value

    def _number(self, value: Any, name: str) -> float:
        if type(value) not in (int, float):
            raise SchemaError(f"{self.where}.{name}: expected a number, found {_shown(value)}")
        try:
            return float(value)
        except OverflowError as error:
            raise SchemaError(f"{self.where}.{name}: {_shown(value)} is too large") from error


def _shown(value: Any, *, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
