"""Which records a critic's weights hold: each exactly once per pass, across restarts."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus.errors import StoreError
from focus.training.sqlite_file import SqliteFile

__all__ = ("Commit", "CriticLedger", "PromptHome", "Session")

_SCHEMA = "focus.critic_ledger/1"
_TABLES = (
    """create table sessions (
        session integer primary key, parent text, targets text not null,
        state text not null check (state in ('open', 'published')), version text)""",
    """create table prompts (
        session integer not null, run text not null, name text not null, is_new integer not null,
        primary key (session, run, name))""",
    """create table applied (
        session integer not null, pass integer not null, record text not null,
        step integer not null, primary key (session, pass, record)) without rowid""",
    "create table problems (key text primary key) without rowid",
    """create table commits (
        number integer primary key autoincrement, session integer not null,
        pass integer not null, step integer not null, is_whole integer not null,
        checkpoint text not null, held_out real, facts text not null)""",
)


@dataclass(frozen=True, slots=True, order=True)
class PromptHome:
    """One prompt's file: its run, and its name within the run's directory."""

    run: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session of training, from its records to its snapshot.

    Attributes:
        number: from 1.
        parent: the version it started from; None for a first one.
        targets: ``"recorded"`` or ``"outcomes"``.
        version: what it was published as; None while it is open.
    """

    number: int
    parent: str | None
    targets: str
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A state of the weights that is on disk, and where in its session it stands.

    Attributes:
        session, pass_index, step: the step after which it was taken, counted in its pass.
        is_whole: the pass is complete.
        checkpoint: folder name.
        held_out: error on held-out problems after a complete pass, if there are any.
        facts: figures so far, plain JSON.
    """

    session: int
    pass_index: int
    step: int
    is_whole: bool
    checkpoint: str
    held_out: float | None
    facts: dict[str, Any]


class CriticLedger(SqliteFile):
    """A SQLite file beside the checkpoints.

    Records become "applied" in the transaction that names the checkpoint whose weights hold
    them. A trainer that dies goes on from the last checkpoint, so what it did after that is
    in neither of the two, and is done again from the same place.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, schema=_SCHEMA, tables=_TABLES)

    @property
    def trainer(self) -> str:
        """A name for this training, made once; snapshots carry it in their origin."""
        known: str | None = self.fact("trainer")
        if known is None:
            known = uuid.uuid4().hex[:12]
            self.note("trainer", known)
        return known

    def open_session(
        self,
        *,
        parent: str | None,
        targets: str,
        new: Sequence[PromptHome],
        replayed: Sequence[PromptHome] = (),
    ) -> Session:
        """Begin the next session on these prompts.

        Raises:
            StoreError: one is open already, or a new prompt was in an earlier one.
        """
        if self.open() is not None:
            raise StoreError(f"ledger {self._path}: a session is open already")
        with self._transaction() as db:
            number = db.execute("select coalesce(max(session), 0) + 1 from sessions").fetchone()[0]
            db.execute(
                "insert into sessions values (?, ?, ?, 'open', null)", (number, parent, targets)
            )
            rows = [(number, home.run, home.name, True) for home in new]
            rows += [(number, home.run, home.name, False) for home in replayed]
            db.executemany("insert into prompts values (?, ?, ?, ?)", rows)
        return Session(number=number, parent=parent, targets=targets, version=None)

    def last_session(self) -> Session | None:
        """The newest session, open or published."""
        rows = self._read(
            "select session, parent, targets, version from sessions order by 1 desc limit 1"
        )
        if not rows:
            return None
        number, parent, targets, version = rows[0]
        return Session(number=number, parent=parent, targets=targets, version=version)

    def open(self) -> Session | None:
        """The session that is not published yet, if any."""
        last = self.last_session()
        return last if last is not None and last.version is None else None

    def prompts(self, session: int) -> list[PromptHome]:
        """What a session reads, in order."""
        rows = self._read("select run, name from prompts where session = ? order by 1, 2", session)
        return [PromptHome(run, name) for run, name in rows]

    def known_prompts(self) -> set[PromptHome]:
        """Every prompt that was new in some session."""
        rows = self._read("select run, name from prompts where is_new")
        return {PromptHome(run, name) for run, name in rows}

    def meet(self, keys: Iterable[str]) -> None:
        """Remember problems whose records were read; nothing is judged on them any more."""
        with self._transaction() as db:
            rows = [(key,) for key in sorted(keys)]
            db.executemany("insert or ignore into problems values (?)", rows)

    def met(self) -> set[str]:
        """Keys of every problem that `meet` was told."""
        return {key for (key,) in self._read("select key from problems")}

    def commit(self, commit: Commit, applied: Sequence[tuple[str, int]]) -> None:
        """Accept a checkpoint that is on disk, with the (record, step) pairs it holds on top.

        Raises:
            StoreError: one of them was applied before in this pass; nothing is accepted.
        """
        place = (commit.session, commit.pass_index)
        try:
            with self._transaction() as db:
                db.executemany(
                    "insert into applied values (?, ?, ?, ?)",
                    [(*place, record, step) for record, step in applied],
                )
                db.execute(
                    "insert into commits values (null, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *place,
                        commit.step,
                        commit.is_whole,
                        commit.checkpoint,
                        commit.held_out,
                        json.dumps(commit.facts, allow_nan=False),
                    ),
                )
        except StoreError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise StoreError(
                    f"ledger {self._path}: session {commit.session}, pass {commit.pass_index} "
                    f"would apply a record twice ({error.__cause__})"
                ) from error
            raise

    def commits(self, session: int | None = None) -> list[Commit]:
        """Accepted checkpoints in order, of one session or of all."""
        rows = self._read(
            "select session, pass, step, is_whole, checkpoint, held_out, facts from commits "
            "where session = coalesce(?, session) order by number",
            session,
        )
        with self._errors():
            return [
                Commit(
                    session=number,
                    pass_index=pass_index,
                    step=step,
                    is_whole=bool(is_whole),
                    checkpoint=checkpoint,
                    held_out=held_out,
                    facts=json.loads(facts),
                )
                for number, pass_index, step, is_whole, checkpoint, held_out, facts in rows
            ]

    def applied(self, session: int, pass_index: int) -> dict[str, int]:
        """Step by record id, of what the last checkpoint of a pass holds."""
        rows = self._read(
            "select record, step from applied where session = ? and pass = ?", session, pass_index
        )
        return dict(rows)

    def published(self, session: int, version: str) -> None:
        """Close a session whose snapshot is in the store."""
        with self._transaction() as db:
            db.execute(
                "update sessions set state = 'published', version = ? where session = ?",
                (version, session),
            )
