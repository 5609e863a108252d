"""Fresh outcomes on disk: what a critic is judged on, never what it is trained on.

They travel as critic records in a `JsonlDirectory` of their own. A record's target is the
outcome of one unbranched continuation from its checkpoint, its count is 1, and the
diagnostic ``fresh`` marks it, so that no regression target can be taken for one: Ḡ holds
the critic's own values and would flatter it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus.errors import RecordError
from focus.records.jsonl_reader import read_critic_records
from focus.records.records import CriticRecord, RecordKey
from focus.training.gate import BaseRates, GateSample
from focus.training.solving import FreshOutcome
from focus.tree import Identity

__all__ = ("FreshSet", "base_rates", "fresh_records", "read_fresh")

FRESH = "fresh"


def fresh_records(
    outcomes: Sequence[FreshOutcome],
    *,
    identity: Identity,
    policy_version: str,
    critic_version: str,
) -> list[tuple[CriticRecord, ...]]:
    """Records of fresh outcomes, one tuple per problem, each for one `JsonlDirectory.write`."""
    found: dict[str, list[CriticRecord]] = {}
    for one in outcomes:
        source = RecordKey(
            identity=identity,
            problem=one.problem.id,
            key=one.problem.key,
            policy_version=policy_version,
            critic_version=critic_version,
        )
        record = CriticRecord(
            source=source,
            node=one.depth,
            context=one.context,
            target=one.outcome,
            count=1,
            prior=one.value,
            depth=one.depth,
            diagnostics={FRESH: 1.0},
        )
        found.setdefault(one.problem.key, []).append(record)
    return [tuple(records) for records in found.values()]


@dataclass(frozen=True, kw_only=True)
class FreshSet:
    """Fresh outcomes that a judgement may use.

    Attributes:
        records: of the latest rounds, of problems that were not trained on.
        left_out: records of problems that were.
    """

    records: tuple[CriticRecord, ...]
    left_out: int

    def samples(self, values: Sequence[float]) -> list[GateSample]:
        """With one critic's values of the records' contexts."""
        return [
            GateSample(record.source.key, record.depth, value, record.target)
            for record, value in zip(self.records, values, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Where they came from."""
        sources = {record.source for record in self.records}
        return {
            "records": len(self.records),
            "problems": len({source.key for source in sources}),
            "rounds": sorted({source.identity.round for source in sources}),
            "policy_versions": sorted({source.policy_version for source in sources}),
            "left_out": self.left_out,
        }


def read_fresh(folders: Iterable[Path], *, trained: Container[str], rounds: int = 1) -> FreshSet:
    """The newest fresh outcomes of some folders.

    Args:
        folders: each a `JsonlDirectory` of fresh outcomes.
        trained: keys of problems that a model was trained on.
        rounds: how many of a folder's latest rounds count as "by the current actor".

    Raises:
        StoreError: a folder cannot be read.
        RecordError: a record is a regression target and no fresh outcome.
    """
    kept: list[CriticRecord] = []
    left_out = 0
    for folder in folders:
        records = list(read_critic_records(folder))
        newest = sorted({record.source.identity.round for record in records})[-rounds:]
        for record in records:
            _check_fresh(record, folder)
            if record.source.identity.round in newest:
                left_out += record.source.key in trained
                if record.source.key not in trained:
                    kept.append(record)
    return FreshSet(records=tuple(kept), left_out=left_out)


def _check_fresh(record: CriticRecord, folder: Path) -> None:
    if record.diagnostics.get(FRESH) != 1.0 or record.count != 1:
        raise RecordError(
            f"{folder}: problem {record.source.problem!r}, node {record.node} holds a regression "
            "target, not the outcome of one fresh continuation; a critic is never judged on those"
        )


def base_rates(records: Iterable[CriticRecord]) -> BaseRates:
    """Best constants, overall and per depth, on training records.

    Suffix outcomes are taken where a record carries them (the diagnostics ``mean`` and
    ``samples`` of RefinedTd), and its target and count elsewhere.

    Raises:
        ValueError: there are no records.
    """
    sums: dict[int, tuple[float, float]] = {}
    for record in records:
        count = float(record.diagnostics.get("samples", record.count))
        mean = record.diagnostics.get("mean", record.target)
        total, weight = sums.get(record.depth, (0.0, 0.0))
        sums[record.depth] = (total + count * mean, weight + count)
    if not sums:
        raise ValueError("no records to fit constants on")
    total = sum(part for part, _ in sums.values())
    weight = sum(part for _, part in sums.values())
    return BaseRates(total / weight, {depth: t / w for depth, (t, w) in sorted(sums.items())})
