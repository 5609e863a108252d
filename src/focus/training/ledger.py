"""Which rounds were issued, collected and applied: exactly once each, across restarts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus.errors import StoreError
from focus.training.sqlite_file import SqliteFile

__all__ = ("AppliedRound", "RunLedger")

_SCHEMA = "focus.ledger/1"
_TABLES = (
    """create table attempts (
        round integer not null, attempt integer not null, problems text not null,
        state text not null check (state in ('issued', 'collected', 'applied', 'abandoned')),
        primary key (round, attempt))""",
    """create table applied (
        round integer primary key, attempt integer not null, checkpoint text not null,
        optimizer_steps integer not null, metrics text not null)""",
)


@dataclass(frozen=True, slots=True)
class AppliedRound:
    """A round whose update is part of the model.

    Attributes:
        round, attempt: its identity.
        checkpoint: folder name that holds the state after it.
        optimizer_steps: actor steps taken in the whole run so far.
        metrics: what it measured.
    """

    round: int
    attempt: int
    checkpoint: str
    optimizer_steps: int
    metrics: Mapping[str, Any]


class RunLedger(SqliteFile):
    """A SQLite file; each change is one transaction.

    A round is issued, collected and applied under one attempt number. A restart issues
    the round again under the next number and abandons the old one, so nothing of a dead
    attempt is ever read as accepted. `apply` stores the checkpoint's name in the same
    transaction that accepts the round: a crash leaves the round applied or not, never half.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, schema=_SCHEMA, tables=_TABLES)

    def issue(self, round_index: int, problems: Sequence[str]) -> int:
        """Begin a round; returns its attempt number.

        Raises:
            StoreError: the round is already applied, or an earlier one is not.
        """
        with self._transaction() as db:
            due = db.execute("select coalesce(max(round) + 1, 0) from applied").fetchone()[0]
            if round_index != due:
                raise StoreError(f"round {round_index} cannot be issued: round {due} is due")
            db.execute("update attempts set state = 'abandoned' where round = ?", (round_index,))
            attempt: int = db.execute(
                "select count(*) from attempts where round = ?", (round_index,)
            ).fetchone()[0]
            db.execute(
                "insert into attempts values (?, ?, ?, 'issued')",
                (round_index, attempt, json.dumps(list(problems))),
            )
        return attempt

    def collected(self, round_index: int, attempt: int) -> None:
        """All trees of the attempt are settled and its records are on disk."""
        self._move(round_index, attempt, "issued", "collected")

    def apply(self, done: AppliedRound) -> None:
        """Accept a round whose checkpoint is on disk.

        Raises:
            StoreError: it was not collected under this attempt, is applied already, or a
                metric is not finite.
        """
        with self._transaction() as db:
            self._move_in(db, done.round, done.attempt, "collected", "applied")
            db.execute(
                "insert into applied values (?, ?, ?, ?, ?)",
                (
                    done.round,
                    done.attempt,
                    done.checkpoint,
                    done.optimizer_steps,
                    _dumps(dict(done.metrics)),
                ),
            )

    def _move(self, round_index: int, attempt: int, before: str, after: str) -> None:
        with self._transaction() as db:
            self._move_in(db, round_index, attempt, before, after)

    def _move_in(
        self, db: sqlite3.Connection, round_index: int, attempt: int, before: str, after: str
    ) -> None:
        changed = db.execute(
            "update attempts set state = ? where round = ? and attempt = ? and state = ?",
            (after, round_index, attempt, before),
        ).rowcount
        if changed != 1:
            raise StoreError(
                f"round {round_index} attempt {attempt} is not {before}; it cannot be {after}"
            )

    def applied(self) -> list[AppliedRound]:
        """Accepted rounds in order."""
        rows = self._read("select * from applied order by round")
        with self._errors():
            return [AppliedRound(r, a, name, steps, json.loads(m)) for r, a, name, steps, m in rows]

    def attempts(self) -> list[tuple[int, int, str]]:
        """(round, attempt, state) of everything ever issued."""
        rows = self._read("select round, attempt, state from attempts order by 1, 2")
        return [tuple(row) for row in rows]


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
