"""What a trainer and a scorer need of any value model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from focus._extras import require
from focus.critic.reading import Reading
from focus.records.records import CriticContext

__all__ = ("ScoreBatch", "TrainableValue", "predicted")


@dataclass(frozen=True, slots=True)
class ScoreBatch:
    """One forward pass.

    Attributes:
        inputs: keyword arguments of the model's module.
        members: index of the context that each logit belongs to.
        tokens: ids that are read, padding not counted.
    """

    inputs: dict[str, Any]
    members: tuple[int, ...]
    tokens: int


class TrainableValue(Protocol):
    """focus.critic.local.ValueModel and focus.critic.classifier.ClassifierModel.

    Attributes:
        module: a torch module; its forward takes a `ScoreBatch`'s inputs and gives logits.
        version: names the snapshot.
        reading: what it reads, and its value range.
    """

    module: Any
    version: str
    reading: Reading

    def to(self, device: Any) -> None: ...

    def save(self, folder: Path) -> None: ...

    def predict(
        self, contexts: Sequence[CriticContext], *, batch_tokens: int = 8192
    ) -> list[float]: ...

    def score_batches(
        self, contexts: Sequence[CriticContext], *, batch_tokens: int
    ) -> list[ScoreBatch]:
        """Forward passes that cover `contexts`, at most `batch_tokens` padded ids each."""
        ...


def predicted(
    model: TrainableValue, contexts: Sequence[CriticContext], *, batch_tokens: int
) -> list[float]:
    """One value per context, without gradient."""
    torch = require("torch", extra="local")
    modules = require("focus.critic.modules", extra="local")
    results = [0.0] * len(contexts)
    with torch.inference_mode():
        for batch in model.score_batches(contexts, batch_tokens=batch_tokens):
            values = modules.to_range(model.module(**batch.inputs), model.reading)
            for member, value in zip(batch.members, values.tolist(), strict=True):
                results[member] = value
    return results
