"""Critic records on disk: one JSONL file per collected prompt.

    directory/
      manifest.json                                   schema and run, written first
      round-000003.attempt-000.<hash>.jsonl           one prompt of one attempt of a round
      round-000003.accepted.json                      which attempt of the round counts

The hash covers run, round, attempt and problem, so data never chooses a path and 7 and
"7" are two prompts. A file appears whole or not at all. Each line is one record and says
which of how many it is, so a file that loses lines later is found out.

A restart is a new attempt and its files lie beside the old ones. Whoever applies a round
to the models calls :meth:`JsonlDirectory.accept` once that is done, and
:meth:`JsonlDirectory.roll_back` when it resumes from an earlier round. As soon as a
directory holds one mark, readers see accepted attempts only; without any mark, a round
is readable while it has a single attempt.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus.errors import ConfigError, RecordError, SchemaError, StoreError
from focus.records.codec import CRITIC_SCHEMA, encode_critic, encode_source, opened
from focus.records.files import (
    OS_FILES,
    Files,
    listed,
    read_if_present,
    read_whole,
    store_error,
    write_whole,
)
from focus.records.records import CriticRecord, RecordKey
from focus.records.strict_json import dumps, loads

__all__ = ("JsonlDirectory", "PromptFile", "accepted_attempts", "read_manifest")

MANIFEST_SCHEMA = "focus.records/1"
ACCEPTED_SCHEMA = "focus.accepted/1"
MANIFEST = "manifest.json"

_MARK_NAME = re.compile(r"round-(\d{6,})\.accepted\.json")
_FILE_NAME = re.compile(r"round-(\d{6,})\.attempt-(\d{3,})\.([0-9a-f]{32})\.jsonl")


@dataclass(frozen=True, slots=True, order=True)
class PromptFile:
    """What a file's name says."""

    round: int
    attempt: int
    digest: str

    @classmethod
    def of(cls, source: RecordKey) -> PromptFile:
        """The file of one prompt.

        Raises:
            RecordError: run, round, attempt or problem cannot be stored.
        """
        identity = source.identity
        encode_source(source)
        text = dumps(
            [identity.run, identity.round, identity.attempt, source.problem],
            what="the problem's id",
        )
        return cls(identity.round, identity.attempt, hashlib.sha256(text).hexdigest()[:32])

    @classmethod
    def parse(cls, name: str) -> PromptFile | None:
        """None when `name` is not one of ours."""
        match = _FILE_NAME.fullmatch(name)
        file = cls(int(match[1]), int(match[2]), match[3]) if match else None
        return file if file is not None and file.name == name else None

    @property
    def name(self) -> str:
        return f"round-{self.round:06d}.attempt-{self.attempt:03d}.{self.digest}.jsonl"


class JsonlDirectory:
    """A sink for critic records. Nothing is touched before the first write.

    Calls block for one small write; an event loop runs them in a worker thread. Many
    threads, processes and hosts may share a directory.

    Args:
        path: the directory; made, with its parents, at the first write.
        fsync: also survive a power loss, at the price of two syncs per prompt.
        run: the only run whose records may enter; None takes the run of the first record.
        files: the file calls, replaced by tests of failing disks.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sink = JsonlDirectory(os.path.join(folder, "made", "later"))
    ...     os.listdir(folder)
    []
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = False,
        run: str | None = None,
        files: Files = OS_FILES,
    ) -> None:
        # Absolute now: a process that changes its directory later keeps one sink.
        self.path: Path = Path(os.path.abspath(path))
        self._fsync = fsync
        self._run = run
        self._files = files
        self._opened_for: str | None = None

    def __repr__(self) -> str:
        return f"JsonlDirectory({str(self.path)!r})"

    @property
    def run(self) -> str | None:
        """The only run whose records may enter, if one was named."""
        return self._run

    def write(self, records: Sequence[CriticRecord]) -> Path | None:
        """Store all critic records of one prompt; None, and no file, for no records.

        Raises:
            RecordError: records of several prompts, or values JSON cannot hold.
            StoreError: the prompt was written before, the directory is another run's or
                none at all, or a file call failed. No part of the prompt is visible then,
                and the same call may be repeated.
        """
        if not records:
            return None
        source = records[0].source
        target = self.path / PromptFile.of(source).name
        data = _encode_lines(records)
        self._open(source.identity.run)
        try:
            write_whole(target, data, overwrite=False, fsync=self._fsync, files=self._files)
        except FileExistsError as error:
            identity = source.identity
            raise StoreError(
                f"{target}: problem {source.problem!r} was written before in round "
                f"{identity.round}, attempt {identity.attempt}. A restart needs a new attempt."
            ) from error
        except StoreError:
            self._opened_for = None
            raise
        return target

    def accept(self, *, round: int, attempt: int) -> None:
        """Mark the attempt whose records of `round` count.

        Repeating it changes nothing; a later attempt overrules an earlier one. One
        process accepts: the trainer, after it has applied the round.

        Raises:
            ConfigError: `round` or `attempt` is negative.
            StoreError: nothing was written here yet, a later attempt is accepted
                already, or the mark cannot be written.
        """
        if round < 0 or attempt < 0:
            raise ConfigError(f"round and attempt must be >= 0, got {round} and {attempt}")
        before = accepted_attempts(self.path).get(round)
        if before is not None and before > attempt:
            raise StoreError(
                f"{self.path}: attempt {before} of round {round} is accepted; {attempt} is older"
            )
        if before != attempt:
            self._mark(round, attempt)

    def roll_back(self, *, after: int) -> None:
        """Withdraw the acceptance of every round later than `after`; files stay.

        For a run that resumes from the models as they were after that round: what the
        dead attempt collected later must not be read as part of the new one.

        Raises:
            StoreError: nothing was written here yet, or a mark cannot be written.
        """
        for round, attempt in accepted_attempts(self.path).items():
            if round > after and attempt is not None:
                self._mark(round, None)

    def _mark(self, round: int, attempt: int | None) -> None:
        run = read_manifest(self.path)
        mark = {"schema": ACCEPTED_SCHEMA, "run": run, "round": round, "attempt": attempt}
        write_whole(
            self.path / f"round-{round:06d}.accepted.json",
            dumps(mark, what="acceptance") + b"\n",
            overwrite=True,
            fsync=self._fsync,
            files=self._files,
        )

    def _open(self, run: str) -> None:
        if self._opened_for == run:
            return
        expected = run if self._run is None else self._run
        if run != expected:
            raise StoreError(f"{self.path}: opened for run {expected!r}, got a record of {run!r}")
        try:
            self._files.make_directory(self.path)
            if self._fsync:
                self._files.sync_directory(self.path.parent)
        except OSError as error:
            raise store_error(self.path, "make the directory", error) from error
        self._claim(run)
        self._opened_for = run

    def _claim(self, run: str) -> None:
        """Write the manifest unless another writer was first; then theirs must be the same."""
        target = self.path / MANIFEST
        manifest = {"schema": MANIFEST_SCHEMA, "records": CRITIC_SCHEMA, "run": run}
        data = dumps(manifest, what=f"run {run!r}") + b"\n"
        # Another writer's manifest is the normal case; what it says settles it.
        with contextlib.suppress(FileExistsError):
            write_whole(target, data, overwrite=False, fsync=self._fsync, files=self._files)
        found = read_manifest(self.path)
        if found != run:
            raise StoreError(
                f"{target}: the directory belongs to run {found!r}, not to {run!r}. "
                "Choose another directory, or keep the run's name when you restart it."
            )


def read_manifest(directory: Path) -> str:
    """The run that a directory of records belongs to.

    Raises:
        StoreError: there is no manifest, or it cannot be read.
        SchemaError: it is not one of ours.
    """
    path = directory / MANIFEST
    data = read_if_present(path)
    if data is None:
        raise StoreError(f"{directory}: no {MANIFEST}, so this is no directory of FOCUS records")
    try:
        fields = opened(loads(data, where=MANIFEST), schema=MANIFEST_SCHEMA, where=MANIFEST)
        run, records = fields.text("run"), fields.text("records")
        fields.done()
    except SchemaError as error:
        raise SchemaError(f"{directory}: not a directory of FOCUS records: {error}") from error
    if records != CRITIC_SCHEMA:
        raise SchemaError(f"{path}: holds {records!r}, this reader knows {CRITIC_SCHEMA!r}")
    return run


def accepted_attempts(directory: Path) -> dict[int, int | None]:
    """The accepted attempt of each round that has a mark; None where it was withdrawn.

    Raises:
        StoreError: the directory or a mark cannot be read.
        SchemaError: a mark is damaged or lies about its round.
    """
    marks = {}
    for name in listed(directory):
        match = _MARK_NAME.fullmatch(name)
        if match is not None:
            marks[int(match[1])] = _read_mark(directory / name, int(match[1]))
    return marks


def _read_mark(path: Path, round: int) -> int | None:
    fields = opened(
        loads(read_whole(path), where=str(path)), schema=ACCEPTED_SCHEMA, where=str(path)
    )
    fields.text("run")
    found, attempt = fields.integer("round"), fields.optional_integer("attempt")
    fields.done()
    if found != round:
        raise SchemaError(f"{path}: marks round {found}")
    return attempt


def _encode_lines(records: Sequence[CriticRecord]) -> bytes:
    """All lines, encoded before any file is opened."""
    source = records[0].source
    nodes = [record.node for record in records]
    if len(set(nodes)) != len(nodes):
        raise RecordError(f"problem {source.problem!r}: two records of one node among {nodes}")
    lines = []
    for number, record in enumerate(records):
        if record.source != source:
            raise RecordError(f"records of {source} and {record.source} in one write")
        line: dict[str, Any] = {**encode_critic(record), "line": number, "lines": len(records)}
        lines.append(dumps(line, what=f"problem {source.problem!r}, node {record.node}") + b"\n")
    return b"".join(lines)
