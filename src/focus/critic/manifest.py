"""The manifest of a published critic: its facts, and the hash of every other file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus.critic.snapshot import FileFacts, RecordsUsed, Snapshot, SnapshotFacts, Verdict
from focus.errors import ConfigError, SchemaError
from focus.records.codec import opened
from focus.records.strict_json import Fields, dumps, loads

__all__ = ("MANIFEST", "decode_manifest", "encode_manifest")

SNAPSHOT_SCHEMA = "focus.snapshot/1"
MANIFEST = "manifest.json"


def encode_manifest(snapshot: Snapshot) -> bytes:
    """The manifest's bytes."""
    facts = snapshot.facts
    used = facts.records
    plain = {
        "schema": SNAPSHOT_SCHEMA,
        "version": snapshot.version,
        "created": snapshot.created,
        "origin": facts.origin,
        "parent": facts.parent,
        "renderer": facts.renderer,
        "value_range": list(facts.value_range),
        "verdict": {"steering": facts.verdict.steering, "reason": facts.verdict.reason},
        "constant": facts.constant,
        "records": {
            "count": used.count,
            "digest": used.digest,
            "rounds": {run: list(span) for run, span in sorted(used.rounds.items())},
            "policy_versions": list(used.policy_versions),
        },
        "judgement": None if facts.judgement is None else dict(facts.judgement),
        "metrics": dict(facts.metrics),
        "files": {
            name: {"sha256": file.sha256, "bytes": file.bytes}
            for name, file in sorted(snapshot.files.items())
        },
    }
    return dumps(plain, what=f"the manifest of {snapshot.version}") + b"\n"


def decode_manifest(data: bytes, *, folder: Path) -> Snapshot:
    """Inverse of `encode_manifest`.

    Raises:
        SchemaError: another schema, shape or type, or values that contradict one another.
    """
    where = str(folder / MANIFEST)
    fields = opened(loads(data, where=where), schema=SNAPSHOT_SCHEMA, where=where)
    version, created = fields.text("version"), fields.text("created")
    files = {name: _file(fields, name, value) for name, value in fields.object("files").items()}
    try:
        facts = _facts(fields)
    except ConfigError as error:
        raise SchemaError(f"{where}: {error}") from error
    fields.done()
    return Snapshot(version=version, folder=folder, created=created, facts=facts, files=files)


def _facts(fields: Fields) -> SnapshotFacts:
    verdict, used = fields.fields("verdict"), fields.fields("records")
    judgement = fields.optional_fields("judgement")
    facts = SnapshotFacts(
        origin=fields.text("origin"),
        renderer=fields.text("renderer"),
        verdict=Verdict(verdict.flag("steering"), verdict.text("reason")),
        value_range=_pair(fields.numbers("value_range"), fields.where),
        constant=fields.optional_number("constant"),
        parent=fields.optional_text("parent"),
        records=RecordsUsed(
            count=used.integer("count"),
            digest=used.text("digest"),
            rounds={run: _span(span, used.where) for run, span in used.object("rounds").items()},
            policy_versions=used.texts("policy_versions"),
        ),
        judgement=None if judgement is None else judgement.rest(),
        metrics=fields.object("metrics"),
    )
    verdict.done()
    used.done()
    return facts


def _file(fields: Fields, name: str, value: Any) -> FileFacts:
    entry = Fields(value, where=f"{fields.where}.files.{name}")
    facts = FileFacts(entry.text("sha256"), entry.integer("bytes"))
    entry.done()
    return facts


def _pair(values: Sequence[float], where: str) -> tuple[float, float]:
    if len(values) != 2:
        raise SchemaError(f"{where}: expected two numbers, found {len(values)}")
    return (values[0], values[1])


def _span(value: Any, where: str) -> tuple[int, int]:
    if not (isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)):
        raise SchemaError(f"{where}: expected a first and a last round, found {value!r}")
    return (value[0], value[1])
