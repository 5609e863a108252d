"""From trained weights to a published snapshot: judged, compared, and read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus.critic.consistency import Consistency, Tolerance
from focus.critic.loading import AnyValueModel, load_value_model
from focus.critic.snapshot import Probe, RecordsUsed, Snapshot, SnapshotFacts, Verdict, record_ids
from focus.critic.store import SnapshotStore
from focus.errors import StoreError
from focus.records.records import CriticContext, CriticRecord
from focus.training.gate import BaseRates
from focus.training.judgement import Judgement, Previous, examine, unjudged
from focus.training.outcomes import FreshSet

__all__ = ("PRECISION", "Candidate", "judged", "promote")

PRECISION = Tolerance(most=0.03, mean=0.01)
"""How far bfloat16 forward passes of training may lie from the published float32 ones."""

Score = Callable[[Sequence[CriticContext]], Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A critic that wants to be published.

    Attributes:
        origin: names the work behind it; published once.
        parent: version it was trained from.
        model: what is saved.
        probes: held contexts with the values that it is published for.
        trained: those against the values of the trainer's own forward passes, which may be
            in another precision; None where there is nothing to compare.
        records, held_out: what it was trained on, and what it was checked on meanwhile.
        rates: constants fitted on them; None where there are no records.
        judgement: of fresh outcomes; None if there were none.
        metrics: of its training.
    """

    origin: str
    parent: str | None
    model: AnyValueModel
    probes: tuple[Probe, ...]
    trained: Consistency | None = None
    records: tuple[CriticRecord, ...]
    held_out: tuple[CriticRecord, ...]
    rates: BaseRates | None
    judgement: Judgement | None
    metrics: dict[str, Any]

    @property
    def verdict(self) -> Verdict:
        if self.judgement is None:
            return unjudged("no fresh outcomes of problems that were not trained on")
        found = self.trained
        if found is not None and not found.within(PRECISION):
            return Verdict(
                False,
                f"its values differ from those in training by up to {found.max_difference:.4f} "
                f"(mean {found.mean_difference:.4f}) on {found.contexts} contexts",
            )
        return self.judgement.verdict

    def facts(self) -> SnapshotFacts:
        low, high = self.model.value_range
        constant = None if self.rates is None else min(max(self.rates.constant, low), high)
        return SnapshotFacts(
            origin=self.origin,
            renderer=self.model.renderer,
            verdict=self.verdict,
            value_range=(low, high),
            constant=constant,
            parent=self.parent,
            records=RecordsUsed.of(self.records, held_out=self.held_out),
            judgement=None if self.judgement is None else self.judgement.to_dict(),
            metrics=self.metrics,
        )


def judged(
    score: Score,
    fresh: FreshSet,
    rates: BaseRates | None,
    *,
    store: SnapshotStore,
    value_range: tuple[float, float],
    device: Any = None,
) -> Judgement | None:
    """The judgement on fresh outcomes, also against the store's current snapshot.

    Args:
        score: values of the candidate.
        fresh: outcomes; where there are none, so is no judgement.
        rates: constants; None takes the fresh outcomes' own mean.
        store: holds the current snapshot.
        value_range: of the candidate.
        device: where the current snapshot is scored.

    Raises:
        StoreError: the current snapshot is damaged.
    """
    if not fresh.records:
        return None
    contexts = [record.context for record in fresh.records]
    samples = fresh.samples(list(score(contexts)))
    mean = sum(sample.outcome for sample in samples) / len(samples)
    return examine(
        samples,
        rates or BaseRates(mean),
        previous=_previous(store, contexts, device),
        value_range=value_range,
        outcomes=fresh.to_dict(),
    )


def _previous(
    store: SnapshotStore, contexts: Sequence[CriticContext], device: Any
) -> Previous | None:
    current = store.current()
    if current is None:
        return None
    model = load_value_model(store.load(current.version))
    if device is not None:
        model.to(device)
    return Previous(current.version, current.verdict.steering, model.predict(contexts))


def promote(candidate: Candidate, store: SnapshotStore) -> Snapshot:
    """Publish it; it becomes current unless that would take the wheel from a better one.

    What is published was read back from the disk first, and agreed with its trainer on the
    probes.

    Raises:
        StoreError: the saved model says something else than the trained one, or the store
            cannot be written. Nothing is published.
    """
    return store.publish(
        lambda folder: _save_checked(candidate, folder),
        candidate.facts(),
        record_ids=sorted(set(record_ids(candidate.records))),
        probes=candidate.probes,
        make_current=_replaces(candidate, store),
    )


def _replaces(candidate: Candidate, store: SnapshotStore) -> bool:
    """A critic that may not steer replaces one that steers only where that one failed too."""
    if candidate.judgement is not None:
        return not candidate.judgement.keeps_previous
    current = store.current()
    return current is None or not current.verdict.steering


def _save_checked(candidate: Candidate, folder: Path) -> None:
    candidate.model.save(folder)
    if not candidate.probes:
        return
    read_back = load_value_model(folder).predict([probe.context for probe in candidate.probes])
    trained = [probe.value for probe in candidate.probes]
    found = Consistency.of(candidate.origin, trained, read_back)
    if not found.within(Tolerance()):
        raise StoreError(
            f"{candidate.origin}: the saved critic differs from the trained one by up to "
            f"{found.max_difference:.4f} (mean {found.mean_difference:.4f}) on {found.contexts} "
            "contexts; is its value range, squashing or precision another one?"
        )
