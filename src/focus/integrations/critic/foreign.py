"""Publish a critic that another trainer made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from focus.critic.loading import starting_value_model
from focus.critic.reading import Squash
from focus.critic.snapshot import Probe, Snapshot
from focus.critic.store import SnapshotStore
from focus.errors import ConfigError
from focus.integrations.critic.material import Folders
from focus.integrations.critic.promotion import Candidate, judged, promote
from focus.training.outcomes import base_rates, read_fresh

__all__ = ("publish_foreign",)

_PROBES = 64


def publish_foreign(
    folder: Path,
    store: SnapshotStore,
    *,
    records: Sequence[Path],
    outcomes: Sequence[Path] = (),
    outcome_rounds: int = 1,
    scores: Sequence[Probe] | None = None,
    squash: Squash = "sigmoid",
    value_range: tuple[float, float] = (0.0, 1.0),
) -> Snapshot:
    """Judge a model folder like one of our own, and publish it; the same weights only once.

    Args:
        folder: what `focus.critic.loading.starting_value_model` takes.
        store: where to.
        records: what it was trained on; names its contexts, its constants, and the problems
            it is not judged on.
        outcomes, outcome_rounds: fresh outcomes, as for `SessionTrainer`.
        scores: contexts with its trainer's own values; None compares it with itself only.
        squash, value_range: how a logit becomes a value.

    Raises:
        ConfigError: no records, or a model that is no critic.
        StoreError: it says something else than `scores`, or cannot be read or written.
    """
    folders = Folders(records)
    found = [record for group in folders.read(folders.prompts()) for record in group]
    if not found:
        raise ConfigError(f"no critic records in {', '.join(map(str, records))}")
    model = starting_value_model(
        folder, like=found[0].context, value_range=value_range, squash=squash
    )
    contexts = [record.context for record in found[:: max(1, len(found) // _PROBES)]][:_PROBES]
    own = tuple(map(Probe, contexts, model.predict(contexts)))
    rates = base_rates(found)
    fresh = read_fresh(
        outcomes, trained={record.source.key for record in found}, rounds=outcome_rounds
    )
    current = store.current()
    candidate = Candidate(
        origin=f"publish/{_digest(folder)}",
        parent=None if current is None else current.version,
        model=model,
        probes=tuple(scores or own),
        records=tuple(found),
        held_out=(),
        rates=rates,
        judgement=judged(model.predict, fresh, rates, store=store, value_range=value_range),
        metrics={"source": folder.name},
    )
    return promote(candidate, store)


def _digest(folder: Path) -> str:
    """Of the weights and the config: publishing them again is the same publication."""
    total = hashlib.sha256()
    for path in sorted((*folder.glob("*.safetensors"), folder / "config.json")):
        with open(path, "rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()[:16]
