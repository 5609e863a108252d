"""Train the value model in this process, with torch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from focus._extras import require
from focus.critic.local import ValueModel
from focus.errors import StoreError
from focus.integrations.local.grouping import by_prompt
from focus.integrations.local.optimizer import clip_and_step, load_optimizer, save_optimizer
from focus.models.weights import stored_weights
from focus.records.records import CriticRecord
from focus.training.settings import CriticSettings

__all__ = ("CriticTrainer",)


class CriticTrainer:
    """Regresses a value model on exported targets.

    Args:
        model: trained in place.
        settings: how.
    """

    def __init__(self, model: ValueModel, settings: CriticSettings) -> None:
        torch = require("torch", extra="local")
        self.model = model
        self.settings = settings
        self.optimizer = torch.optim.AdamW(
            [*model.backbone.parameters(), *model.head.parameters()],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )
        self.steps = 0

    def update(self, records: Sequence[CriticRecord], *, seed: int) -> dict[str, float]:
        """`settings.steps` optimizer steps over `records`; returns the mean weighted error.

        Loss: Σ w (V − target)² / Σ w over a step's contexts, w = n / (n + count_weight).
        """
        if not records:
            return {"critic_loss": 0.0}
        trees = by_prompt(records)
        rng = random.Random(seed)
        waiting: list[list[CriticRecord]] = []
        losses = []
        for _ in range(self.settings.steps):
            chosen: list[CriticRecord] = []
            while len(chosen) < min(self.settings.batch_contexts, len(records)):
                waiting = waiting or rng.sample(trees, len(trees))
                chosen += waiting.pop()
            losses.append(self._step(chosen))
        return {"critic_loss": sum(losses) / len(losses)}

    def _step(self, records: Sequence[CriticRecord]) -> float:
        torch = require("torch", extra="local")
        weight = [self._weight(record) for record in records]
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        contexts = [record.context for record in records]
        for batch in self.model.batches(contexts, batch_tokens=self.settings.batch_tokens):
            values, members = self.model.values(batch)
            targets = torch.tensor([records[i].target for i in members], device=values.device)
            weights = torch.tensor([weight[i] for i in members], device=values.device)
            loss = (weights * (values - targets) ** 2).sum() / sum(weight)
            loss.backward()
            total += float(loss.detach())
        modules = torch.nn.ModuleList([self.model.backbone, self.model.head])
        clip_and_step(modules, self.optimizer, self.settings.grad_norm)
        self.steps += 1
        return total

    def publish(self, version: str) -> None:
        """Name the snapshot that collects from now on."""
        self.model.version = version

    def _weight(self, record: CriticRecord) -> float:
        return record.count / (record.count + self.settings.count_weight)

    def save(self, folder: Path) -> None:
        """Value model, optimizer state and step count; no pickle."""
        self.model.save(folder)
        save_optimizer(self.optimizer, folder, steps=self.steps)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote into this trainer.

        Raises:
            StoreError: it is missing, damaged or of another model.
        """
        stored = ValueModel.load(folder)
        if stored.tokenizer_hash != self.model.tokenizer_hash:
            raise StoreError(f"{folder}: the critic of tokenizer {stored.tokenizer_hash!r}")
        with stored_weights(folder):
            self.model.backbone.load_state_dict(stored.backbone.state_dict())
            self.model.head.load_state_dict(stored.head.state_dict())
        self.model.version = stored.version
        self.steps = load_optimizer(self.optimizer, folder)
