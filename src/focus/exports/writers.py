"""Tables as files: JSON lines, or Parquet where pyarrow is installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.exports.tables import Column

__all__ = ("WRITERS", "TableWriter", "jsonl_writer", "parquet_writer")

TableWriter = Callable[[Sequence[Mapping[str, Any]]], None]
"""Adds rows to a table."""

_BATCH_ROWS = 4096


@contextmanager
def jsonl_writer(path: Path, columns: Sequence[Column] | None) -> Iterator[TableWriter]:
    """One JSON object a line, with every column of the table.

    Args:
        path: the file; an older one is replaced.
        columns: None takes the rows as they are.
    """
    with open(path, "w", encoding="utf-8") as stream:

        def write(rows: Sequence[Mapping[str, Any]]) -> None:
            for row in rows:
                whole = row if columns is None else {c.name: row.get(c.name) for c in columns}
                stream.write(json.dumps(whole, allow_nan=False) + "\n")

        yield write


@contextmanager
def parquet_writer(path: Path, columns: Sequence[Column] | None) -> Iterator[TableWriter]:
    """A Parquet file that pandas, Polars and DuckDB read; written in groups of rows.

    Args:
        path: the file; an older one is replaced.
        columns: None infers their types from the rows, which are then written at once.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    arrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    held: list[Mapping[str, Any]] = []
    if columns is None:
        yield held.extend
        parquet.write_table(arrow.Table.from_pylist(held), path)
        return
    schema = arrow.schema([(column.name, _type(arrow, column)) for column in columns])
    with parquet.ParquetWriter(path, schema) as writer:

        def flush() -> None:
            if held:
                writer.write_table(arrow.Table.from_pylist(held, schema=schema))
                held.clear()

        def write(rows: Sequence[Mapping[str, Any]]) -> None:
            held.extend(rows)
            if len(held) >= _BATCH_ROWS:
                flush()

        yield write
        flush()


def _type(arrow: Any, column: Column) -> Any:
    kinds = {
        "text": arrow.string(),
        "int": arrow.int64(),
        "real": arrow.float64(),
        "flag": arrow.bool_(),
        "ints": arrow.list_(arrow.int64()),
        "reals": arrow.list_(arrow.float64()),
    }
    return kinds[column.kind]


WRITERS: Mapping[
    str, Callable[[Path, Sequence[Column] | None], AbstractContextManager[TableWriter]]
] = {"jsonl": jsonl_writer, "parquet": parquet_writer}
"""By the name of the format, which is also the ending of its files."""
