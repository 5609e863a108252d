"""Critic targets as steps of Tinker datums."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from focus.integrations.local.grouping import by_prompt
from focus.integrations.tinker.datums import verdict_datum
from focus.integrations.tinker.verdict import Verdict
from focus.records.records import CriticRecord
from focus.training.settings import CriticSettings

__all__ = ("critic_batches", "verdict_data")


def critic_batches(
    records: Sequence[CriticRecord], settings: CriticSettings, *, seed: int
) -> Iterator[list[CriticRecord]]:
    """Whole trees per step, each tree once before any comes again."""
    trees = by_prompt(records)
    rng = random.Random(seed)
    waiting: list[list[CriticRecord]] = []
    for _ in range(settings.steps):
        chosen: list[CriticRecord] = []
        while len(chosen) < min(settings.batch_contexts, len(records)):
            waiting = waiting or rng.sample(trees, len(trees))
            chosen += waiting.pop()
        yield chosen


def verdict_data(
    records: Sequence[CriticRecord], verdict: Verdict, *, count_weight: float
) -> list[Any]:
    """One step's datums: Σ w · cross entropy / Σ w, with w = n / (n + count_weight)."""
    weights = [record.count / (record.count + count_weight) for record in records]
    total = sum(weights)
    return [
        verdict_datum(
            verdict.prompt(record.context),
            verdict.answers,
            target=record.target,
            weight=weight / total,
        )
        for record, weight in zip(records, weights, strict=True)
    ]
