"""PPO with a critic over tokens: generalised advantages instead of one weight per rollout."""

from __future__ import annotations

import dataclasses
import itertools
import random
import statistics
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from focus.critic.local import ValueModel
from focus.models import resolve
from focus.models.tree_attention import TreeBatch, tree_batches
from focus.records.records import ActorRecord

__all__ = ("TokenCritic", "TokenValues", "generalised_advantages", "reweighted")

Columns = list[list[float]]
"""One number per trained token of each record."""


class TokenValues(Protocol):
    """Expected outcome before each trained token."""

    def values(self, records: Sequence[ActorRecord]) -> Columns:
        """By record, one value per trained token."""
        ...

    def update(self, records: Sequence[ActorRecord], targets: Columns, *, seed: int) -> None:
        """Move the values towards the targets."""
        ...


def generalised_advantages(values: Sequence[float], outcome: float, *, decay: float) -> list[float]:
    """A_t = Σ_k λ^k·δ_{t+k} with δ_t = V_{t+1} − V_t, the outcome standing behind the last V.

    λ = 1 is outcome − V_t, λ = 0 the one-step difference.

    >>> generalised_advantages([0.25, 0.5], 1.0, decay=0.5)
    [0.5, 0.5]
    """
    advantages: list[float] = []
    after, running = outcome, 0.0
    for value in reversed(values):
        running = after - value + decay * running
        advantages.append(running)
        after = value
    return advantages[::-1]


def reweighted(
    records: Sequence[ActorRecord], values: Columns, *, decay: float
) -> tuple[list[ActorRecord], Columns]:
    """Records with whitened token advantages for weights, and the λ-returns to regress on.

    A record that a fold ended stands for an episode of its own with the same outcome.
    """
    columns = [
        generalised_advantages(row, record.outcome or 0.0, decay=decay)
        for record, row in zip(records, values, strict=True)
    ]
    targets = [
        [value + advantage for value, advantage in zip(row, column, strict=True)]
        for row, column in zip(values, columns, strict=True)
    ]
    pooled = list(itertools.chain.from_iterable(columns))
    mean = statistics.fmean(pooled) if pooled else 0.0
    spread = statistics.pstdev(pooled) + 1e-6 if pooled else 1.0
    fresh = [
        _weighted(record, [(advantage - mean) / spread for advantage in column])
        for record, column in zip(records, columns, strict=True)
    ]
    return fresh, targets


def _weighted(record: ActorRecord, column: Sequence[float]) -> ActorRecord:
    own = iter(column)
    weights = tuple(next(own) if trained else 0.0 for trained in record.loss_mask)
    return dataclasses.replace(record, weights=weights)


class TokenCritic:
    """A backbone of its own, started from the policy's, with a value at every token.

    Args:
        model: folder or name that the policy started from.
        steps: optimizer steps per update.
        rate: learning rate.
        batch_tokens: padded tokens of one pass.
        device: where the policy is trained.
    """

    def __init__(
        self, model: str, *, steps: int, rate: float, batch_tokens: int, device: Any
    ) -> None:
        self.model = ValueModel.from_pretrained(resolve(model), version="token")
        self.model.to(device)
        self.steps = steps
        self.batch_tokens = batch_tokens
        self.optimizer = torch.optim.AdamW(
            self.model.module.parameters(), lr=rate, weight_decay=0.0
        )

    @torch.no_grad()
    def values(self, records: Sequence[ActorRecord]) -> Columns:
        found: Columns = [[] for _ in records]
        for batch in self._batches(records):
            values, owners = self._forward(batch, records)
            for value, owner in zip(values.tolist(), owners, strict=True):
                found[owner].append(value)
        return found

    def update(self, records: Sequence[ActorRecord], targets: Columns, *, seed: int) -> None:
        """Squared error, `steps` steps of an eighth of the records each."""
        rng = random.Random(seed)
        size = max(1, len(records) // 8)
        for _ in range(self.steps if records else 0):
            chosen = rng.sample(range(len(records)), size)
            part = [records[i] for i in chosen]
            wanted = [targets[i] for i in chosen]
            tokens = sum(map(len, wanted))
            self.optimizer.zero_grad(set_to_none=True)
            for batch in self._batches(part):
                values, owners = self._forward(batch, part)
                aims = torch.tensor(_in_order(wanted, owners), device=values.device)
                (((values - aims) ** 2).sum() / tokens).backward()
            torch.nn.utils.clip_grad_norm_(self.model.module.parameters(), 1.0)
            self.optimizer.step()

    def _batches(self, records: Sequence[ActorRecord]) -> list[TreeBatch]:
        ids = [record.tokens for record in records]
        return tree_batches(self.model.backbone, ids, batch_tokens=self.batch_tokens)

    def _forward(
        self, batch: TreeBatch, records: Sequence[ActorRecord]
    ) -> tuple[torch.Tensor, list[int]]:
        """Values before the trained tokens of a batch, and the record of each."""
        rows, places, owners = [], [], []
        for row, tree in enumerate(batch.trees):
            for member, path in zip(tree.members, tree.paths, strict=True):
                record = records[member]
                start = len(record.prefix) - 1
                mask = record.loss_mask
                before = [path[start + i] for i in itertools.compress(range(len(mask)), mask)]
                rows += [row] * len(before)
                places += before
                owners += [member] * len(before)
        logits = self.model.module(rows=rows, places=places, **batch.inputs)
        return torch.sigmoid(logits), owners


def _in_order(wanted: Columns, owners: Sequence[int]) -> list[float]:
    """The targets of the records in the order that a batch reads them."""
    columns = [iter(column) for column in wanted]
    return [next(columns[owner]) for owner in owners]
