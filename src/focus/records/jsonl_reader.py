"""Reading critic records back: whole prompts, of the attempts that count."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from focus.errors import ConfigError, SchemaError, StoreError
from focus.records.codec import decode_critic
from focus.records.files import listed, read_whole
from focus.records.jsonl import PromptFile, accepted_attempts, read_manifest
from focus.records.records import CriticRecord
from focus.records.strict_json import Fields, loads

__all__ = ("Attempts", "CriticReader", "SkippedLine", "read_critic_records")

Attempts = Mapping[int, int] | Literal["accepted", "latest"]


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """Something that was left out.

    Attributes:
        path: the file.
        line: from 1; 0 is the file as a whole.
        reason: the error's text.
    """

    path: Path
    line: int
    reason: str


def read_critic_records(
    path: str | os.PathLike[str],
    *,
    rounds: Container[int] | None = None,
    attempts: Attempts = "accepted",
    on_error: Literal["raise", "skip"] = "raise",
) -> CriticReader:
    """Read what a `JsonlDirectory` wrote, in order of round, file name and line.

    One file is held in memory at a time, and none of its records is given out before all
    of it was read. Lines end at the byte ``\\n`` and nowhere else.

    Args:
        path: the directory.
        rounds: rounds to read, e.g. ``range(4)``; None reads all.
        attempts: ``"accepted"``: if any round of the directory has a mark, the accepted
            attempts; otherwise each round must have a single attempt. ``"latest"``: the
            highest attempt of each round. A mapping: that attempt of each round it names.
        on_error: ``"skip"`` leaves damaged lines out and lists them in
            ``reader.skipped``; whole records of the same file are still given out.

    Raises:
        StoreError: while iterating: no directory, no manifest, several attempts and no
            mark.
        SchemaError: while iterating, under ``"raise"``: a damaged line or file, by name.
    """
    return CriticReader(Path(path), rounds=rounds, attempts=attempts, on_error=on_error)


@dataclass
class CriticReader:
    """Iterates over the records of a directory; each pass starts afresh.

    Attributes:
        skipped: what the last pass left out under ``on_error="skip"``.
    """

    directory: Path
    rounds: Container[int] | None = field(kw_only=True)
    attempts: Attempts = field(kw_only=True)
    on_error: Literal["raise", "skip"] = field(kw_only=True)
    skipped: list[SkippedLine] = field(default_factory=list, init=False)

    def __iter__(self) -> Iterator[CriticRecord]:
        self.skipped.clear()
        run = read_manifest(self.directory)
        for file in self.files():
            yield from self._records(file, run)

    def files(self) -> list[PromptFile]:
        """Prompts that would be read now, in order; none of them is opened."""
        read_manifest(self.directory)
        files = list(self._files())
        chosen = _chosen(self.directory, files, self.attempts)
        return [file for file in files if chosen.get(file.round) == file.attempt]

    def read(self, file: PromptFile) -> list[CriticRecord]:
        """The whole records of one prompt, whether or not its attempt counts by now."""
        return self._records(file, read_manifest(self.directory))

    def _files(self) -> Iterator[PromptFile]:
        for name in listed(self.directory):
            path = self.directory / name
            file = PromptFile.parse(name)
            if file is None and name.endswith(".jsonl"):
                self._report(path, 0, SchemaError(f"{path}: not a name that FOCUS gives"))
            if file is not None and (self.rounds is None or file.round in self.rounds):
                yield file

    def _records(self, file: PromptFile, run: str) -> list[CriticRecord]:
        """Every whole record of one file."""
        path = self.directory / file.name
        lines: dict[int, _Line] = {}
        for number, data in enumerate(_split(path), start=1):
            try:
                line = _decode(data, where=f"{path}, line {number}")
                _check_home(line, file, run, lines, where=f"{path}, line {number}")
            except SchemaError as error:
                self._report(path, number, error)
            else:
                lines[line.index] = line
        expected = max((line.of for line in lines.values()), default=1)
        if len(lines) < expected:
            shortage = SchemaError(f"{path}: holds {len(lines)} whole records of {expected}")
            self._report(path, 0, shortage)
        return [line.record for line in lines.values()]

    def _report(self, path: Path, line: int, error: SchemaError) -> None:
        if self.on_error == "raise":
            raise error
        self.skipped.append(SkippedLine(path, line, str(error)))


@dataclass(frozen=True, slots=True)
class _Line:
    record: CriticRecord
    index: int
    of: int


def _split(path: Path) -> list[bytes]:
    """Lines with their newline; only the last one can lack it."""
    lines = [line + b"\n" for line in read_whole(path).split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _decode(data: bytes, *, where: str) -> _Line:
    if not data.endswith(b"\n"):
        raise SchemaError(f"{where}: cut after {len(data)} bytes")
    fields = Fields(loads(data, where=where), where=where)
    index, of = fields.integer("line"), fields.integer("lines", least=1)
    return _Line(decode_critic(fields.rest(), where=where), index, of)


def _check_home(
    line: _Line, file: PromptFile, run: str, before: Mapping[int, _Line], *, where: str
) -> None:
    """A line belongs to the run, to the file's name, and to its place among the others."""
    source = line.record.source
    if source.identity.run != run:
        raise SchemaError(f"{where}: of run {source.identity.run!r}, the directory is of {run!r}")
    if PromptFile.of(source) != file:
        raise SchemaError(f"{where}: problem {source.problem!r} belongs to another file")
    place = f"{where}: record {line.index} of {line.of}, node {line.record.node},"
    if line.index >= line.of:
        raise SchemaError(f"{place} lies past the last one")
    nodes = {other.record.node for other in before.values()}
    if line.index in before or line.record.node in nodes:
        raise SchemaError(f"{place} appears twice")


def _chosen(directory: Path, files: Sequence[PromptFile], attempts: Attempts) -> Mapping[int, int]:
    """The attempt to read of each round; rounds without one are not read."""
    if not isinstance(attempts, str):
        return attempts
    by_round: dict[int, set[int]] = {}
    for file in files:
        by_round.setdefault(file.round, set()).add(file.attempt)
    if attempts == "latest":
        return {round: max(found) for round, found in by_round.items()}
    if attempts != "accepted":
        raise ConfigError(f"attempts must be 'accepted', 'latest' or a mapping, got {attempts!r}")
    marks = accepted_attempts(directory)
    if marks:
        return {round: attempt for round, attempt in marks.items() if attempt is not None}
    for round, found in by_round.items():
        if len(found) > 1:
            raise StoreError(
                f"{directory}: round {round} has attempts {sorted(found)} and none is accepted. "
                'Call accept(), or read with attempts="latest" or a mapping.'
            )
    return {round: found.pop() for round, found in by_round.items()}
