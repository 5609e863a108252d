"""The full figures that stand in the docs: measured once, committed, dated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from focus.errors import SchemaError
from focus.promises.base import Measured, Row
from focus.promises.rows import ROWS
from focus.records.codec import opened
from focus.records.files import read_if_present, write_whole
from focus.records.strict_json import Fields, loads

__all__ = ("SCHEMA", "STORED", "details", "store", "stored_rows")

SCHEMA = "focus.promises/1"
STORED = Path(__file__).with_name("measured.json")


def stored_rows(path: Path = STORED) -> tuple[Row, ...]:
    """Every row with its stored figure; whether it is met is judged by today's target.

    Raises:
        StoreError: the file cannot be read.
        SchemaError: it is damaged, or names a row that is not promised any more.
    """
    figures = _figures(path)
    rows = []
    for promise in ROWS:
        fields = figures.pop(promise.id, None)
        rows.append(Row(promise=promise) if fields is None else _row(promise, fields))
    if figures:
        raise SchemaError(f"{path}: figures of unknown promises {', '.join(sorted(figures))}")
    return tuple(rows)


def store(rows: Iterable[Row], path: Path = STORED) -> None:
    """Replace the figures of these rows, whole or not at all; rows without one stay as they were.

    Raises:
        StoreError: the file cannot be read or written.
    """
    import json

    known = {row.promise.id: row for row in stored_rows(path)}
    known.update({row.promise.id: row for row in rows if row.measured is not None})
    body = {row.promise.id: _plain(row) for row in known.values() if row.measured is not None}
    text = json.dumps({"schema": SCHEMA, "rows": body}, indent=1, allow_nan=False) + "\n"
    write_whole(path, text.encode(), overwrite=True)


def details(rows: Iterable[Row]) -> dict[str, Mapping[str, Any]]:
    """The figures behind the figures, and errors, by row."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row.error:
            found[row.promise.id] = {"error": row.error}
        elif row.measured is not None and row.measured.detail:
            found[row.promise.id] = row.measured.detail
    return found


def _figures(path: Path) -> dict[str, Fields]:
    data = read_if_present(path)
    if data is None:
        return {}
    fields = opened(loads(data, where=str(path)), schema=SCHEMA, where=str(path))
    rows = fields.fields("rows")
    fields.done()
    return {name: rows.fields(name) for name in rows.names()}


def _row(promise: Any, fields: Fields) -> Row:
    measured_on = fields.text("measured_on")
    found = Measured(fields.number("figure"), fields.integer("trials"), fields.object("detail"))
    fields.done()
    return Row(promise=promise, measured=found, measured_on=measured_on)


def _plain(row: Row) -> dict[str, Any]:
    assert row.measured is not None
    return {
        "figure": row.measured.figure,
        "trials": row.measured.trials,
        "detail": dict(row.measured.detail),
        "measured_on": row.measured_on,
    }
