"""Fit the surprisal critic between rounds; no torch, and no state but its nine weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from focus.critic.surprisal import SurprisalModel
from focus.records.records import CriticRecord
from focus.training.settings import CriticSettings

__all__ = ("SurprisalTrainer",)

FILE = "surprisal.json"


class SurprisalTrainer:
    """Refits a surprisal critic to the targets of the last rounds.

    Attributes:
        model: the snapshot last fitted.
        settings: of which `ridge` counts.
    """

    def __init__(self, settings: CriticSettings, *, version: str) -> None:
        self.settings = settings
        self.model = SurprisalModel.constant(0.5, version=version)

    def update(self, records: Sequence[CriticRecord], *, seed: int) -> dict[str, float]:
        """Fit to `records` from scratch; returns the mean squared error, weighted by counts."""
        if not records:
            return {"critic_loss": 0.0}
        version = self.model.version
        self.model = self.model.fitted(records, version=version, ridge=self.settings.ridge)
        values = self.model.predict([record.context for record in records])
        errors = (
            record.count * (value - record.target) ** 2
            for record, value in zip(records, values, strict=True)
        )
        return {"critic_loss": sum(errors) / sum(record.count for record in records)}

    def publish(self, version: str) -> None:
        """Name the snapshot that collects from now on."""
        self.model = replace(self.model, version=version)

    def save(self, folder: Path) -> None:
        """Write the model."""
        self.model.save(folder / FILE)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote.

        Raises:
            StoreError: it is missing or damaged.
        """
        self.model = SurprisalModel.load(folder / FILE)
