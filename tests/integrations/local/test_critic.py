"""The value model is trained on exactly the contexts that it scores."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from focus.critic.local import ValueModel
from focus.critic.reading import Reading
from focus.errors import CriticError, StoreError
from focus.integrations.local import CriticTrainer
from focus.models import BUILTIN
from focus.records import CriticContext, CriticRecord
from focus.training.settings import CriticSettings

if TYPE_CHECKING:
    from tests.integrations.local.conftest import Batch


def trainer_of(**changes: Any) -> CriticTrainer:
    torch.manual_seed(0)
    model = ValueModel.from_pretrained(BUILTIN, version="critic-0000", tokenizer_hash="")
    return CriticTrainer(model, CriticSettings(**{"steps": 8, "learning_rate": 1e-3, **changes}))


def separable(batch: Batch) -> list[CriticRecord]:
    """Contexts whose target stands in their last id: even 0.9, odd 0.1."""
    return [
        dataclasses.replace(record, target=0.9 if _last(record) % 2 == 0 else 0.1, count=4)
        for record in batch.critic
    ]


def _last(record: CriticRecord) -> int:
    assert record.context.ids is not None
    return record.context.ids[-1]


def error(trainer: CriticTrainer, records: list[CriticRecord]) -> float:
    values = trainer.model.predict([record.context for record in records])
    return sum((v - r.target) ** 2 for v, r in zip(values, records, strict=True)) / len(records)


def test_known_targets_are_learned(batch: Batch) -> None:
    trainer, records = trainer_of(steps=24), separable(batch)
    before = error(trainer, records)
    figures = trainer.update(records, seed=0)
    after = error(trainer, records)
    assert before == pytest.approx(0.16, abs=0.01)
    assert after < before / 2
    assert after < figures["critic_loss"] < before
    assert trainer.steps == 24


def weighted_error(trainer: CriticTrainer, records: list[CriticRecord], prior: float) -> float:
    """Σ w (V − target)² / Σ w, with V from scoring and w = n / (n + prior)."""
    weights = [record.count / (record.count + prior) for record in records]
    values = trainer.model.predict([record.context for record in records])
    terms = zip(weights, values, records, strict=True)
    return sum(w * (v - r.target) ** 2 for w, v, r in terms) / sum(weights)


@pytest.mark.parametrize("prior", [0.0, 3.0])
def test_the_first_loss_is_the_weighted_error_of_what_scoring_says(
    batch: Batch, prior: float
) -> None:
    rng = random.Random(1)
    records = [
        dataclasses.replace(record, target=rng.random(), count=rng.randint(1, 9))
        for record in batch.critic
    ]
    trainer = trainer_of(steps=1, batch_contexts=10**6, count_weight=prior)
    with torch.no_grad():
        trainer.model.head.weight.normal_(std=0.1)
    expected = weighted_error(trainer, records, prior)
    assert trainer.update(records, seed=0)["critic_loss"] == pytest.approx(expected, rel=1e-4)


def test_micro_batches_do_not_change_the_step(batch: Batch) -> None:
    records = separable(batch)
    found = []
    for batch_tokens in (1, 100_000):
        trainer = trainer_of(steps=1, batch_tokens=batch_tokens, batch_contexts=10**6)
        trainer.update(records, seed=0)
        found.append(trainer.model.head.weight.detach().clone())
    assert torch.allclose(*found, rtol=1e-3, atol=1e-6)


def test_every_tree_is_visited_before_one_is_visited_twice(batch: Batch) -> None:
    records = separable(batch)
    trees = {record.source.key for record in records}
    seen: list[str] = []

    class Watching(CriticTrainer):
        def _step(self, records: Any) -> float:
            seen.extend(dict.fromkeys(record.source.key for record in records))
            return super()._step(records)

    model = trainer_of().model
    Watching(model, CriticSettings(steps=4, batch_contexts=1)).update(records, seed=0)
    assert len(seen) == 4
    assert set(seen[: len(trees)]) == trees


def test_the_same_function_reads_contexts_in_scoring_and_in_training(batch: Batch) -> None:
    """What scoring refuses, training refuses too."""
    trainer = trainer_of()
    trainer.model.reading = Reading(tokenizer_hash=batch.critic[0].context.tokenizer_hash)
    good = batch.critic[0]
    trainer.update([good], seed=0)
    for context in (
        dataclasses.replace(good.context, renderer="text/1"),
        dataclasses.replace(good.context, ids=None),
        dataclasses.replace(good.context, tokenizer_hash="other"),
        CriticContext(renderer="token_chunk/1", text=""),
    ):
        with pytest.raises(CriticError):
            trainer.model.predict([context])
        with pytest.raises(CriticError):
            trainer.update([dataclasses.replace(good, context=context)], seed=0)


def same_state(one: CriticTrainer, other: CriticTrainer) -> bool:
    pairs = [
        (one.model.backbone.state_dict(), other.model.backbone.state_dict()),
        (one.model.head.state_dict(), other.model.head.state_dict()),
    ]
    return one.steps == other.steps and all(
        torch.equal(left[name], right[name]) for left, right in pairs for name in left
    )


def test_a_restored_trainer_goes_on_bit_for_bit(batch: Batch, tmp_path: Path) -> None:
    records = separable(batch)
    straight, first = trainer_of(steps=3), trainer_of(steps=3)
    for trainer in (straight, first):
        trainer.update(records, seed=1)
    first.model.version = "critic-0004"
    first.save(tmp_path)
    second = trainer_of(steps=3)
    second.load(tmp_path)
    assert second.model.version == "critic-0004"
    assert same_state(first, second)
    for trainer in (straight, second):
        trainer.update(records, seed=2)
    assert same_state(straight, second)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_a_critic_of_another_tokenizer_is_not_restored(tmp_path: Path) -> None:
    trainer = trainer_of()
    trainer.save(tmp_path)
    trainer.model.reading = Reading(tokenizer_hash="other")
    with pytest.raises(StoreError, match="tokenizer"):
        trainer.load(tmp_path)


def test_no_records_make_no_step() -> None:
    trainer = trainer_of()
    assert trainer.update([], seed=0) == {"critic_loss": 0.0}
    assert trainer.steps == 0
