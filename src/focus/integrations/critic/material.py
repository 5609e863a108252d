"""What a session trains on: prompts from record folders, split by problem, in an order."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from focus.critic.snapshot import record_ids
from focus.errors import ConfigError, RecordError, StoreError
from focus.integrations.critic.ledger import PromptHome
from focus.integrations.critic.settings import CriticTraining
from focus.records.jsonl import PromptFile, read_manifest
from focus.records.jsonl_reader import read_critic_records
from focus.records.records import CriticContext, CriticRecord

__all__ = ("Example", "Folders", "Material", "steps_of")


@dataclass(frozen=True, slots=True)
class Example:
    """One regression example.

    Attributes:
        record: id in ledger and snapshot.
        context: what the critic reads.
        target: in the critic's range.
        weight: ≥ 0; n/(n + count_weight), and 0 where outcomes are wanted and none was seen.
        prior: prediction at collection.
    """

    record: str
    context: CriticContext
    target: float
    weight: float
    prior: float


class Folders:
    """Record folders, by the run that each belongs to.

    Args:
        paths: `JsonlDirectory` folders; one that does not exist yet has no prompts.

    Raises:
        ConfigError: no folder, or two of one run.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        if not paths:
            raise ConfigError("name at least one folder of critic records")
        self._paths = tuple(paths)

    def _by_run(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for path in self._paths:
            if not (path / "manifest.json").exists() and not any(path.glob("*.jsonl")):
                continue
            run = read_manifest(path)
            if run in found:
                raise ConfigError(f"{path} and {found[run]} both hold records of run {run!r}")
            found[run] = path
        return found

    def prompts(self) -> list[PromptHome]:
        """Every prompt of an accepted attempt, sorted.

        Raises:
            StoreError: a folder is damaged, or has several attempts and none is accepted.
        """
        return sorted(
            PromptHome(run, file.name)
            for run, path in self._by_run().items()
            for file in read_critic_records(path).files()
        )

    def read(self, homes: Iterable[PromptHome]) -> list[list[CriticRecord]]:
        """The records of each prompt.

        Raises:
            StoreError: its folder was not given, or its file is gone or damaged.
        """
        paths, found = self._by_run(), []
        for home in homes:
            file = PromptFile.parse(home.name)
            if home.run not in paths or file is None:
                raise StoreError(f"{home.name}: give the records folder of run {home.run!r} again")
            found.append(read_critic_records(paths[home.run]).read(file))
        return found


@dataclass(frozen=True)
class Material:
    """A session's records, ready for training.

    Attributes:
        train: examples by prompt.
        held_out: examples of problems that are never trained on (unless a session holds no
            others: then they are all there is).
        keys: keys of every problem, held out or not: the actor has trained on all of them.
        records, held_records: the same as records, for the manifest.
    """

    train: tuple[tuple[Example, ...], ...]
    held_out: tuple[Example, ...]
    keys: frozenset[str]
    records: tuple[CriticRecord, ...]
    held_records: tuple[CriticRecord, ...]

    @classmethod
    def of(
        cls, prompts: Sequence[Sequence[CriticRecord]], settings: CriticTraining, *, targets: str
    ) -> Material:
        """Split and weigh.

        Raises:
            RecordError: a target lies outside the critic's range.
        """
        groups = [group for group in prompts if group]
        kept = [group for group in groups if not _is_held_out(group[0].source.key, settings)]
        held = [group for group in groups if _is_held_out(group[0].source.key, settings)]
        if not kept:
            kept, held = held, []
        return cls(
            train=tuple(tuple(_examples(group, settings, targets)) for group in kept),
            held_out=tuple(e for group in held for e in _examples(group, settings, targets)),
            keys=frozenset(group[0].source.key for group in groups),
            records=tuple(record for group in kept for record in group),
            held_records=tuple(record for group in held for record in group),
        )


def _examples(
    records: Sequence[CriticRecord], settings: CriticTraining, targets: str
) -> list[Example]:
    low, high = settings.value_range
    found = []
    for name, record in zip(record_ids(records), records, strict=True):
        target, count = _target(record, targets)
        if not low <= target <= high:
            raise RecordError(f"{name}: target {target} outside the critic's range [{low}, {high}]")
        share = count / (count + settings.count_weight) if count else 0.0
        found.append(Example(name, record.context, target, share, record.prior))
    return found


def _target(record: CriticRecord, targets: str) -> tuple[float, float]:
    """Target and its count; a record without a word on outcomes is taken as it is."""
    seen: Mapping[str, float] = record.diagnostics
    if targets == "recorded" or "samples" not in seen:
        return record.target, float(record.count)
    return seen.get("mean", record.target), float(seen["samples"])


def _is_held_out(key: str, settings: CriticTraining) -> bool:
    """By the key alone: a problem stays on its side in every session."""
    digest = hashlib.sha256(f"{settings.seed}/{key}".encode()).digest()
    return int.from_bytes(digest[:8]) < settings.held_out * 2**64


def steps_of(
    train: Sequence[Sequence[Example]], settings: CriticTraining, *, session: int, pass_index: int
) -> list[list[Sequence[Example]]]:
    """A pass: every prompt once, in an order of its own, in steps of whole prompts.

    >>> one = Example("a", CriticContext(renderer="r", text=""), 0.5, 1.0, 0.5)
    >>> settings = CriticTraining(batch_contexts=2)
    >>> [len(step) for step in steps_of([[one]] * 5, settings, session=1, pass_index=0)]
    [2, 2, 1]
    """
    rng = random.Random(f"{settings.seed}/{session}/{pass_index}")
    steps: list[list[Sequence[Example]]] = []
    size = settings.batch_contexts
    for prompt in rng.sample(list(train), len(train)):
        if size >= settings.batch_contexts:
            steps.append([])
            size = 0
        steps[-1].append(prompt)
        size += len(prompt)
    return steps
