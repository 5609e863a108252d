"""A SQLite file of ours: typed errors, whole transactions, a schema of its own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from focus.errors import StoreError

__all__ = ("SqliteFile",)

_FACTS = "create table facts (name text primary key, value text not null)"


class SqliteFile:
    """A SQLite file; each change is one transaction that survives a power loss.

    Args:
        path: made if it is missing.
        schema: name and number; a file of another one is refused.
        tables: of a new file, besides that of its facts.

    Raises:
        StoreError: the file is damaged, of another schema, or cannot be written.
    """

    def __init__(self, path: Path, *, schema: str, tables: Sequence[str]) -> None:
        self._path = path
        with self._errors():
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open(schema, tables)
        except BaseException:
            self.close()
            raise

    def _open(self, schema: str, tables: Sequence[str]) -> None:
        """Make the tables of a new file; of an older one, believe only our own schema."""
        if self._read("select count(*) from sqlite_master")[0][0] == 0:
            with self._transaction() as db:
                for table in (_FACTS, *tables):
                    db.execute(table)
                db.execute("insert into facts values ('schema', ?)", (json.dumps(schema),))
        found = self.fact("schema")
        if found != schema:
            raise StoreError(
                f"ledger {self._path}: schema {found!r}, this version reads {schema!r}"
            )
        with self._errors():
            self._db.execute("pragma synchronous = full")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors, and values that are no JSON, name the file they come from."""
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            raise StoreError(f"ledger {self._path}: {error}") from error

    def _read(self, query: str, *values: Any) -> list[Any]:
        with self._errors():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            self._db.execute("begin immediate")
            try:
                yield self._db
                self._db.execute("commit")
            finally:
                if self._db.in_transaction:
                    self._db.execute("rollback")

    def note(self, name: str, value: Any) -> None:
        """Store a fact of the run, once or again."""
        with self._transaction() as db:
            db.execute(
                "insert or replace into facts values (?, ?)",
                (name, json.dumps(value, allow_nan=False)),
            )

    def fact(self, name: str) -> Any:
        """A stored fact, or None."""
        rows = self._read("select value from facts where name = ?", name)
        with self._errors():
            return json.loads(rows[0][0]) if rows else None
