"""A published critic: its files and what is known about them, as plain values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus.errors import ConfigError, SchemaError
from focus.records.codec import decode_context, encode_context, opened
from focus.records.files import read_whole
from focus.records.jsonl import PromptFile
from focus.records.records import CriticContext, CriticRecord, RecordKey
from focus.records.strict_json import dumps, loads, require_json

__all__ = (
    "MODEL",
    "FileFacts",
    "Probe",
    "RecordsUsed",
    "Snapshot",
    "SnapshotFacts",
    "Verdict",
    "encode_probes",
    "read_probes",
    "record_ids",
)

PROBE_SCHEMA = "focus.probe/1"
MODEL = "model"
PROBES = "probes.jsonl"
RECORDS = "records.txt"


@dataclass(frozen=True, slots=True)
class Verdict:
    """May this critic steer search and credit?

    Attributes:
        steering: yes or no.
        reason: why, in words; never empty.

    >>> str(Verdict(False, "judged on 120 checkpoints; at least 500 are needed"))
    'not steering: judged on 120 checkpoints; at least 500 are needed'
    """

    steering: bool
    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ConfigError("a verdict needs a reason")

    def __str__(self) -> str:
        return f"{'steering' if self.steering else 'not steering'}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class RecordsUsed:
    """Which critic records a snapshot was trained on; its parents name what they held before.

    Attributes:
        count: distinct records.
        digest: SHA-256 over their sorted ids, one a line; the ids lie beside the model.
        rounds: first and last round by run, of all that was read, held-out records included.
        policy_versions: the policies that collected them, sorted.
    """

    count: int = 0
    digest: str = hashlib.sha256(b"").hexdigest()
    rounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    policy_versions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, records: Sequence[CriticRecord], *, held_out: Sequence[CriticRecord] = ()
    ) -> RecordsUsed:
        """A summary of `records`, each counted once, and of those it was checked on."""
        sources = {record.source for record in records}
        spans: dict[str, tuple[int, int]] = {}
        for source in sources | {record.source for record in held_out}:
            run, number = source.identity.run, source.identity.round
            first, last = spans.get(run, (number, number))
            spans[run] = (min(first, number), max(last, number))
        ids = sorted(set(record_ids(records)))
        return cls(
            count=len(ids),
            digest=hashlib.sha256("".join(f"{name}\n" for name in ids).encode()).hexdigest(),
            rounds=dict(sorted(spans.items())),
            policy_versions=tuple(sorted({source.policy_version for source in sources})),
        )


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts:
    """What its publisher says of a snapshot.

    Attributes:
        origin: names the piece of work that made it, e.g. ``"train/3f2a…/pass-4"``; the
            same origin is published once, however often it is tried.
        renderer: name and version of the contexts it reads.
        value_range: lowest and highest value.
        verdict: of its judgement.
        constant: the constant to use while it does not steer; None if none was fitted.
        parent: the version it was trained from, if it was published.
        records: what it was trained on.
        judgement: the numbers behind the verdict, plain JSON (focus.training.judgement).
        metrics: figures of its training, plain JSON.

    Raises:
        ConfigError: an empty origin, an empty range, or a constant outside it.
        RecordError: `judgement` or `metrics` are not plain JSON.
    """

    origin: str
    renderer: str
    verdict: Verdict
    value_range: tuple[float, float] = (0.0, 1.0)
    constant: float | None = None
    parent: str | None = None
    records: RecordsUsed = field(default_factory=RecordsUsed)
    judgement: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = self.value_range
        if not self.origin or not self.renderer:
            raise ConfigError("a snapshot needs an origin and a renderer")
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ConfigError(f"{self.origin}: value_range {self.value_range} is empty")
        if self.constant is not None and not low <= self.constant <= high:
            raise ConfigError(f"{self.origin}: constant {self.constant} is outside [{low}, {high}]")
        require_json(dict(self.judgement or {}), where=f"{self.origin}: judgement")
        require_json(dict(self.metrics), where=f"{self.origin}: metrics")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of a snapshot: SHA-256 and length."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A held context and the value that the trained model gave it, before it was saved."""

    context: CriticContext
    value: float


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One published version; immutable.

    Attributes:
        version: e.g. ``"critic-0007"``.
        folder: where it lies.
        created: when it was published, ISO 8601 in UTC.
        facts: what its publisher said.
        files: every file but the manifest, by path within the folder.
    """

    version: str
    folder: Path
    created: str
    facts: SnapshotFacts
    files: Mapping[str, FileFacts]

    @property
    def model(self) -> Path:
        """The model's folder: config, safetensors, tokenizer."""
        return self.folder / MODEL

    @property
    def verdict(self) -> Verdict:
        return self.facts.verdict

    def record_ids(self) -> tuple[str, ...]:
        """Ids of the training records, sorted.

        Raises:
            StoreError: the list cannot be read, or is not the one the manifest names.
        """
        data = read_whole(self.folder / RECORDS)
        if hashlib.sha256(data).hexdigest() != self.facts.records.digest:
            raise SchemaError(f"{self.folder / RECORDS}: not the records of the manifest")
        return tuple(data.decode("utf-8").split("\n")[:-1])

    def probes(self) -> tuple[Probe, ...]:
        """Held contexts with trained values, for a served copy to be compared with.

        Raises:
            SchemaError: the file is damaged.
        """
        return read_probes(self.folder / PROBES)


def record_ids(records: Iterable[CriticRecord]) -> list[str]:
    """One id per record, unique over runs: its prompt's file name and its node."""
    homes: dict[RecordKey, str] = {}
    ids = []
    for record in records:
        if record.source not in homes:
            homes[record.source] = PromptFile.of(record.source).name
        ids.append(f"{homes[record.source]}#{record.node}")
    return ids


def encode_probes(probes: Sequence[Probe]) -> bytes:
    """One JSON line per probe."""
    lines = [
        {"schema": PROBE_SCHEMA, "value": probe.value, "context": encode_context(probe.context)}
        for probe in probes
    ]
    return b"".join(dumps(line, what="probe") + b"\n" for line in lines)


def read_probes(path: Path) -> tuple[Probe, ...]:
    """Inverse of `encode_probes`, from a file.

    Raises:
        StoreError: it cannot be read.
        SchemaError: it is damaged.
    """
    lines = read_whole(path).split(b"\n")
    if lines.pop():
        raise SchemaError(f"{path}: its last line is cut")
    return tuple(
        _decode_probe(line, where=f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
    )


def _decode_probe(data: bytes, *, where: str) -> Probe:
    fields = opened(loads(data, where=where), schema=PROBE_SCHEMA, where=where)
    probe = Probe(decode_context(fields.fields("context")), fields.number("value"))
    fields.done()
    return probe
