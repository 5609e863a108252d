"""The actor's loss is one sum over trained tokens, however they are packed and batched."""

from __future__ import annotations

import copy
import dataclasses
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from focus.errors import ConfigError, StoreError
from focus.integrations.local import ActorTrainer, surrogate_loss
from focus.integrations.local.actor import token_tensors
from focus.integrations.local.trust_region import divergence
from focus.models.tree_attention import tree_batches
from focus.records import ActorRecord, as_rows
from focus.training.settings import ActorSettings

if TYPE_CHECKING:
    from tests.integrations.local.conftest import Batch

LOW, HIGH = 0.2, 0.28


def settings(**changes: Any) -> ActorSettings:
    return ActorSettings(**{"clip_low": LOW, "clip_high": HIGH, "learning_rate": 1e-3, **changes})


def trainer_of(batch: Batch, *, dtype: Any = torch.float64, **changes: Any) -> ActorTrainer:
    """The model that sampled the tree, moved away from it: ratios are off 1."""
    model = copy.deepcopy(batch.model)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=draw, dtype=torch.float64)
            weight += 0.3 * weight.std() * noise
    return ActorTrainer(model.to(dtype), settings(**changes))


def gradient(trainer: ActorTrainer, records: Sequence[ActorRecord]) -> tuple[float, torch.Tensor]:
    trainer.optimizer.zero_grad(set_to_none=True)
    loss, _ = trainer.accumulate(records, prompts=2)
    parts = [p.grad.double().flatten() for p in trainer.model.parameters() if p.grad is not None]
    return loss, torch.cat(parts)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference, relative to the largest entry."""
    return float((one - other).abs().max() / one.abs().max())


def trained_tokens(records: Sequence[ActorRecord]) -> Iterator[tuple[Any, ...]]:
    """(context, id, log-prob, weight) of every trained token."""
    for record in records:
        tokens, start = record.tokens, len(record.prefix)
        for offset, trained in enumerate(record.loss_mask):
            if trained:
                place = start + offset
                yield (
                    tokens[:place],
                    tokens[place],
                    record.log_probs[offset],
                    record.weights[offset],
                    record.temperature,
                )


def tensors(model: Any, records: Sequence[ActorRecord]) -> tuple[torch.Tensor, ...]:
    sequences = [record.tokens for record in records]
    parts = [
        token_tensors(model, part, records)
        for part in tree_batches(model, sequences, batch_tokens=100_000)
    ]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def test_the_tree_is_worth_testing_on(batch: Batch) -> None:
    segment, path = batch.actor("segment"), batch.actor("path")
    assert len(segment) > len(path) > 5
    assert sorted(trained_tokens(segment)) == sorted(trained_tokens(path))
    weights = {weight for *_, weight, _ in trained_tokens(segment)}
    assert min(weights) < 0 < max(weights)


def test_both_sides_of_the_clip_are_hit(batch: Batch) -> None:
    trainer = trainer_of(batch)
    with torch.no_grad():
        now, then, weights = tensors(trainer.model, batch.actor("segment"))
    ratio = torch.exp(now - then)
    assert int(((ratio > 1 + HIGH) & (weights > 0)).sum()) > 1
    assert int(((ratio < 1 - LOW) & (weights < 0)).sum()) > 1


@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_both_packings_have_the_same_loss_and_gradient(
    batch: Batch, dtype: Any, most: float
) -> None:
    trainer = trainer_of(batch, dtype=dtype)
    loss, segment = gradient(trainer, batch.actor("segment"))
    same_loss, path = gradient(trainer, batch.actor("path"))
    assert apart(segment, path) <= most
    assert same_loss == pytest.approx(loss, rel=most)
    assert float(segment.abs().max()) > 0


@pytest.mark.parametrize("packing", ["segment", "path"])
def test_micro_batches_and_order_change_nothing(batch: Batch, packing: str) -> None:
    records = batch.actor(packing)[:20]
    loss, expected = gradient(trainer_of(batch, batch_tokens=1), records)
    for batch_tokens in (300, 100_000):
        random.Random(batch_tokens).shuffle(records)
        same_loss, found = gradient(trainer_of(batch, batch_tokens=batch_tokens), records)
        # Qwen's norms compute in float32 whatever the weights are, so float64 has that noise.
        assert apart(expected, found) <= 1e-6
        assert same_loss == pytest.approx(loss, rel=1e-6)


def plain_loss(model: Any, records: Sequence[ActorRecord], prompts: int) -> float:
    """The objective in plain numbers, one token at a time from one sequence at a time."""
    total = 0.0
    for context, token, behaviour, weight, temperature in trained_tokens(records):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([context])).logits[0, -1].tolist()
        scaled = [value / temperature for value in logits]
        top = max(scaled)
        log_norm = top + math.log(math.fsum(math.exp(value - top) for value in scaled))
        ratio = math.exp(scaled[token] - log_norm - behaviour)
        clipped = min(max(ratio, 1 - LOW), 1 + HIGH)
        total += -min(ratio * weight, clipped * weight)
    return total / prompts


def test_the_loss_is_the_one_in_the_book(batch: Batch) -> None:
    trainer = trainer_of(batch)
    records = batch.actor("segment")[:12]
    loss, _ = trainer.accumulate(records, prompts=2)
    assert loss == pytest.approx(plain_loss(trainer.model, records, 2), rel=1e-9)


def test_on_the_sampling_weights_every_ratio_is_one(batch: Batch) -> None:
    model = batch.model
    with torch.no_grad():
        now, then, _ = tensors(model, batch.actor("path"))
    assert float((now - then).abs().max()) < 1e-9


@pytest.mark.parametrize(
    ("ratio", "weight", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 2.0, -2.56, 0.0),
        (0.5, 2.0, -1.0, -1.0),
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 3.0),
    ],
)
def test_the_surrogate_by_hand(ratio: float, weight: float, loss: float, slope: float) -> None:
    """Slope by log-prob: ρ·A where the clip does not bind, else 0; ε = 0.2, ε' = 0.28."""
    now = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    zero, weights = torch.zeros(1, dtype=torch.float64), torch.tensor([weight]).double()
    found = surrogate_loss(now, zero, weights, clip_low=LOW, clip_high=HIGH)
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert now.grad is not None
    assert now.grad.item() == pytest.approx(slope)


def test_an_update_does_not_depend_on_the_order_of_records(batch: Batch) -> None:
    records = batch.actor("path")
    one, other = trainer_of(batch, minibatches=2), trainer_of(batch, minibatches=2)
    first = one.update(records, seed=3)
    second = other.update(records[::-1], seed=3)
    assert one.steps == other.steps == 2
    assert second == pytest.approx(first, rel=1e-6)
    for left, right in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(left, right, rtol=0, atol=1e-8)


def test_an_update_makes_good_edges_likelier(batch: Batch) -> None:
    trainer = ActorTrainer(copy.deepcopy(batch.model), settings(learning_rate=1e-4, minibatches=1))
    records = batch.actor("path")
    before, _ = gradient(trainer, records)
    figures = trainer.update(records, seed=0)
    after, _ = gradient(trainer, records)
    assert after < before
    assert figures["actor_clip_share"] == 0.0
    assert abs(figures["actor_behaviour_kl"]) < 1e-9
    assert figures["actor_loss"] == pytest.approx(before)


def same_state(one: ActorTrainer, other: ActorTrainer) -> bool:
    left, right = one.model.state_dict(), other.model.state_dict()
    before, after = (t.optimizer.state_dict()["state"] for t in (one, other))
    assert left.keys() == right.keys()
    assert before.keys() == after.keys()
    return (
        one.steps == other.steps
        and all(torch.equal(left[name], right[name]) for name in left)
        and all(
            torch.equal(value, after[index][name])
            for index, moments in before.items()
            for name, value in moments.items()
        )
    )


def test_the_rate_rises_step_by_step_to_its_height(batch: Batch) -> None:
    """Adam's first step is as long as its rate."""

    def moved(warmup: int) -> torch.Tensor:
        trainer = trainer_of(batch, warmup=warmup, minibatches=1)
        before = [p.detach().clone() for p in trainer.model.parameters()]
        trainer.update(batch.actor("path"), seed=0)
        pairs = zip(trainer.model.parameters(), before, strict=True)
        return torch.cat([(now.detach() - then).flatten() for now, then in pairs])

    whole, part = moved(0), moved(8)
    assert float(whole.abs().max()) > 0
    assert torch.allclose(whole / 8, part, rtol=1e-6, atol=1e-12)
    rates = [settings(warmup=8).rate_at(step) for step in range(10)]
    assert rates == pytest.approx([1e-3 * min(8, step + 1) / 8 for step in range(10)])


def moved_by(
    trainer: ActorTrainer, records: Sequence[ActorRecord]
) -> tuple[dict[str, float], float]:
    """What one update says, and how far it moved the policy on the records' tokens."""
    before = tensors(trainer.model, records)[0].detach()
    said = trainer.update(records, seed=0)
    return said, divergence(before, tensors(trainer.model, records)[0].detach())


@pytest.mark.parametrize("packing", ["segment", "path", "tree"])
@pytest.mark.parametrize("most", [1e-3, 1e-5, 1e-8])
def test_no_step_moves_the_policy_further_than_allowed(
    batch: Batch, packing: str, most: float
) -> None:
    records = as_rows(batch.actor(packing))
    free, far = moved_by(trainer_of(batch, minibatches=1), records)
    said, near = moved_by(trainer_of(batch, minibatches=1, step_kl=most), records)
    assert far > 1e-3
    assert most / 4 < near <= most
    assert 0 < said["actor_step_kept"] < 1
    assert "actor_step_kept" not in free
    assert said["actor_tokens_computed"] >= 2 * free["actor_tokens_computed"]


def test_a_short_step_is_left_alone(batch: Batch) -> None:
    """Bit for bit, moments included."""
    records = batch.actor("path")
    free, bound = trainer_of(batch), trainer_of(batch, step_kl=1e3)
    free.update(records, seed=0)
    assert bound.update(records, seed=0)["actor_step_kept"] == 1.0
    assert same_state(free, bound)


@pytest.mark.parametrize("changes", [{}, {"warmup": 6}, {"step_kl": 1e-5}], ids=str)
def test_a_restored_trainer_goes_on_bit_for_bit(
    batch: Batch, tmp_path: Path, changes: dict[str, Any]
) -> None:
    records = batch.actor("path")
    straight, first = trainer_of(batch, **changes), trainer_of(batch, **changes)
    for trainer in (straight, first):
        trainer.update(records, seed=1)
    first.save(tmp_path)
    second = trainer_of(batch, **changes)
    second.load(tmp_path)
    assert same_state(first, second)
    for trainer in (straight, second):
        trainer.update(records, seed=2)
    assert same_state(straight, second)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "config.json"])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_damaged_checkpoint_is_refused(
    batch: Batch, name: str, damage: str, tmp_path: Path
) -> None:
    trainer = trainer_of(batch)
    trainer.update(batch.actor("path")[:2], seed=0)
    trainer.save(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-9])
    if damage == "gone":
        path.unlink()
    with pytest.raises(StoreError):
        trainer.load(tmp_path)


def test_moments_of_another_model_are_refused(batch: Batch, tmp_path: Path) -> None:
    trainer = trainer_of(batch)
    trainer.update(batch.actor("path")[:2], seed=0)
    trainer.save(tmp_path)
    small = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3))])
    trainer.optimizer = small
    with pytest.raises(StoreError, match="other parameters"):
        trainer.load(tmp_path)


@pytest.mark.parametrize(
    "law", [{"top_p": 0.9}, {"top_k": 5}, {"temperature": 0.0}], ids=lambda law: next(iter(law))
)
def test_a_law_it_cannot_replay_is_refused(batch: Batch, law: dict[str, Any]) -> None:
    record = dataclasses.replace(batch.actor("path")[0], **law)
    with pytest.raises(ConfigError, match=next(iter(law))):
        trainer_of(batch).update([record], seed=0)


def test_no_records_make_no_step(batch: Batch) -> None:
    trainer = trainer_of(batch)
    figures = trainer.update([], seed=0)
    assert trainer.steps == 0
    assert set(figures.values()) == {0.0}
