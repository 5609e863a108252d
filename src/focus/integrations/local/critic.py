"""Train the value model in this process, with torch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.critic.local import ValueModel, batches, prefix_groups
from focus.errors import StoreError
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
        groups = prefix_groups([self.model.ids(record.context) for record in records])
        rng = random.Random(seed)
        order: list[Any] = []
        losses = []
        for _ in range(self.settings.steps):
            chosen: list[Any] = []
            while sum(len(group.reads) for group in chosen) < self.settings.batch_contexts:
                if not order:
                    if len(chosen) >= len(groups):
                        break
                    order = rng.sample(groups, len(groups))
                chosen.append(order.pop())
            losses.append(self._step(chosen, records))
        return {"critic_loss": sum(losses) / len(losses)}

    def _step(self, groups: Sequence[Any], records: Sequence[CriticRecord]) -> float:
        torch = require("torch", extra="local")
        weight = [self._weight(record) for record in records]
        mass = sum(weight[index] for group in groups for index, _ in group.reads)
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for batch in batches(groups, batch_tokens=self.settings.batch_tokens):
            values, indices = self.model.values(batch)
            targets = torch.tensor([records[i].target for i in indices], device=values.device)
            weights = torch.tensor([weight[i] for i in indices], device=values.device)
            loss = (weights * (values - targets) ** 2).sum() / mass
            loss.backward()
            total += float(loss.detach())
        modules = torch.nn.ModuleList([self.model.backbone, self.model.head])
        clip_and_step(modules, self.optimizer, self.settings.grad_norm)
        self.steps += 1
        return total

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
