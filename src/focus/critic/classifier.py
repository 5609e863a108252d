"""A value model that is a sequence-classification model with one label.

V(context) = sigmoid(logit), stretched to the value range. The form that other servers and
trainers of reward models read; contexts go through it one by one, padded in batches of
similar length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.critic.reading import ModelKind, Reading, read_facts, write_facts
from focus.critic.scoring import ScoreBatch, predicted
from focus.errors import ConfigError, StoreError
from focus.models.weights import load_pretrained
from focus.records.records import CriticContext
from focus.tokens import TokenIds

__all__ = ("ClassifierModel",)


class ClassifierModel:
    """A Hugging Face sequence-classification model with a single label.

    Args:
        classifier: the model; its configuration must name a padding token.
        version: names the snapshot.
        reading: what it reads, and its value range.

    Raises:
        ConfigError: more than one label, or no padding token.
    """

    kind: ModelKind = "classifier"

    def __init__(self, classifier: Any, *, version: str, reading: Reading) -> None:
        modules = require("focus.critic.modules", extra="local")
        if classifier.config.num_labels != 1:
            raise ConfigError(
                f"a critic has one label, this model has {classifier.config.num_labels}"
            )
        if classifier.config.pad_token_id is None:
            raise ConfigError("the model's config names no pad_token_id; set one in config.json")
        self.module = modules.OneLabel(classifier)
        self.version = version
        self.reading = reading

    @property
    def renderer(self) -> str:
        return self.reading.renderer

    @property
    def value_range(self) -> tuple[float, float]:
        return self.reading.value_range

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, version: str, reading: Reading
    ) -> ClassifierModel:
        """The model of a folder as it is.

        Raises:
            StoreError: the folder's weights cannot be read.
            ConfigError: it is no critic.
        """
        torch = require("torch", extra="local")
        model = load_pretrained("AutoModelForSequenceClassification", folder, dtype=torch.float32)
        return cls(model, version=version, reading=reading)

    def to(self, device: Any) -> None:
        """Move the model."""
        self.module.to(device)

    def save(self, folder: str | Path) -> None:
        """Write model and facts; weights as safetensors."""
        folder = Path(folder)
        self.module.classifier.save_pretrained(folder)
        write_facts(folder, self.reading, kind=self.kind, version=self.version)

    @classmethod
    def load(cls, folder: str | Path) -> ClassifierModel:
        """Read what `save` wrote.

        Raises:
            StoreError: no such value model in that folder, or damaged.
        """
        folder = Path(folder)
        kind, version, reading = read_facts(folder)
        if kind != cls.kind:
            raise StoreError(f"{folder}: holds a {kind!r} value model, not a {cls.kind!r} one")
        return cls.from_pretrained(folder, version=version, reading=reading)

    def ids(self, context: CriticContext) -> TokenIds:
        """The tokens that scoring and training both read.

        Raises:
            CriticError: another renderer or tokenizer, or a context that is too long.
        """
        return self.reading.ids(context, version=self.version)

    def score_batches(
        self, contexts: Sequence[CriticContext], *, batch_tokens: int
    ) -> list[ScoreBatch]:
        """Padded passes over contexts of similar length."""
        ids = [self.ids(context) for context in contexts]
        return [self._batch(ids, group) for group in _by_length(ids, batch_tokens)]

    def _batch(self, ids: Sequence[TokenIds], group: Sequence[int]) -> ScoreBatch:
        torch = require("torch", extra="local")
        classifier = self.module.classifier
        width = max(len(ids[member]) for member in group)
        tokens = torch.full((len(group), width), classifier.config.pad_token_id)
        mask = torch.zeros_like(tokens)
        for row, member in enumerate(group):
            tokens[row, : len(ids[member])] = torch.tensor(ids[member])
            mask[row, : len(ids[member])] = 1
        device = classifier.device
        return ScoreBatch(
            inputs={"input_ids": tokens.to(device), "attention_mask": mask.to(device)},
            members=tuple(group),
            tokens=sum(len(ids[member]) for member in group),
        )

    def predict(
        self, contexts: Sequence[CriticContext], *, batch_tokens: int = 8192
    ) -> list[float]:
        """One value per context, without gradient."""
        return predicted(self, contexts, batch_tokens=batch_tokens)


def _by_length(ids: Sequence[TokenIds], batch_tokens: int) -> Iterator[list[int]]:
    """Groups of similar length, at most `batch_tokens` padded ids each (one context at least)."""
    group: list[int] = []
    for member in sorted(range(len(ids)), key=lambda member: len(ids[member])):
        if group and (len(group) + 1) * len(ids[member]) > batch_tokens:
            yield group
            group = []
        group.append(member)
    if group:
        yield group
