"""Packing a tree changes no loss and no gradient; its row is computed as its paths would be."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.strategies import VOCABULARY, random_credit, random_tree
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from focus.credit.base import Credit
from focus.errors import ConfigError
from focus.integrations.local import ActorTrainer
from focus.models.tree_attention import packed_inputs, tree_batches
from focus.records import PACKINGS, PackedTree, PolicyRecord, actor_records, as_rows
from focus.records.packed_tree import pack_tree
from focus.records.prefix_tree import distinct_tokens
from focus.training.settings import ActorSettings
from focus.tree import Tree

if TYPE_CHECKING:
    from tests.integrations.local.conftest import Batch

torch.set_num_threads(1)

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
"""Of the largest component of the gradient, and of the loss."""


@cache
def model(name: str, dtype: torch.dtype) -> Any:
    """A small model of learned (gpt2) or rotated (llama) positions."""
    torch.manual_seed(0)
    if name == "gpt2":
        config = GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2)
        made: Any = GPT2LMHeadModel(config)
    else:
        made = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=16,
                intermediate_size=24,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
            )
        )
    return made.to(dtype).eval()


def loss_and_gradient(
    model: Any, records: Sequence[PolicyRecord], *, batch_tokens: int = 4096
) -> tuple[float, torch.Tensor]:
    trainer = ActorTrainer(model, ActorSettings(clip_high=0.28, batch_tokens=batch_tokens))
    trainer.optimizer.zero_grad(set_to_none=True)
    loss, _ = trainer.accumulate(records, prompts=2)
    parts = [
        torch.zeros(p.numel(), dtype=torch.float64) if p.grad is None else p.grad.double().flatten()
        for p in model.parameters()
    ]
    return loss, torch.cat(parts)


@st.composite
def forests(draw: st.DrawFn) -> list[tuple[Tree[None], Credit]]:
    rng = random.Random(draw(st.integers(0, 2**32)))
    trees = [
        random_tree(rng, nodes=draw(st.integers(2, 14))) for _ in range(draw(st.integers(1, 3)))
    ]
    return [(tree, random_credit(tree, rng)) for tree in trees]


def packed(forest: Sequence[tuple[Tree[None], Credit]], packing: Any) -> list[PolicyRecord]:
    return [r for tree, credit in forest for r in actor_records(tree, credit, packing=packing)]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("gpt2", torch.float64), ("gpt2", torch.float32), ("llama", torch.float32)],
)
@settings(max_examples=20)
@given(forest=forests(), batch_tokens=st.sampled_from([1, 24, 4096]))
def test_random_trees(
    name: str, dtype: torch.dtype, forest: list[tuple[Tree[None], Credit]], batch_tokens: int
) -> None:
    """Several trees in a batch, folds, old log-probs off the model's; trees above the limit."""
    found = {
        packing: loss_and_gradient(
            model(name, dtype), packed(forest, packing), batch_tokens=batch_tokens
        )
        for packing in PACKINGS
    }
    loss, gradient = found["path"]
    largest = float(gradient.abs().max())
    for same_loss, same in found.values():
        assert same_loss == pytest.approx(loss, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])
        assert float((gradient - same).abs().max()) <= TOLERANCE[dtype] * max(largest, 1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_real_trees(batch: Batch, dtype: torch.dtype) -> None:
    """Both sides of the clip are hit: see test_actor.trainer_of."""
    from tests.integrations.local.test_actor import trainer_of

    results = {}
    for packing in PACKINGS:
        trainer = trainer_of(batch, dtype=dtype)
        records: Any = batch.actor(packing)
        results[packing] = loss_and_gradient(trainer.model, records)
    loss, gradient = results["path"]
    for same_loss, same in results.values():
        assert same_loss == pytest.approx(loss, rel=TOLERANCE[dtype])
        apart = float((gradient - same).abs().max() / gradient.abs().max())
        assert apart <= TOLERANCE[dtype]


@pytest.mark.parametrize("most", [60, 150, 250])
def test_a_tree_above_the_limit_is_cut_and_loses_nothing(batch: Batch, most: int) -> None:
    records: Any = batch.actor("tree")
    whole = loss_and_gradient(batch.model, records)
    parts = loss_and_gradient(batch.model, records, batch_tokens=most)
    assert parts[0] == pytest.approx(whole[0], rel=1e-6)
    assert float((whole[1] - parts[1]).abs().max() / whole[1].abs().max()) <= 1e-6
    rows = [row.tokens for row in as_rows(records)]
    trees = [t for b in tree_batches(batch.model, rows, batch_tokens=most) for t in b.trees]
    assert len(trees) > 2
    longest = max(map(len, rows))
    assert all(len(tree.ids) <= max(most, longest) for tree in trees)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@settings(max_examples=20)
@given(forest=forests())
def test_a_row_is_computed_as_each_of_its_paths(
    name: str, forest: list[tuple[Tree[None], Credit]]
) -> None:
    """Position ids, intervals and parents together: logits of the packed row itself."""
    trees = [pack_tree(tree, credit) for tree, credit in forest]
    chosen = model(name, torch.float64)
    with torch.no_grad():
        logits = chosen(**packed_inputs(chosen, trees), use_cache=False).logits
    for row, tree in enumerate(trees):
        columns = tree.columns()
        for last in leaves(tree):
            path = [last]
            while columns.parents[path[-1]] >= 0:
                path.append(columns.parents[path[-1]])
            path.reverse()
            ids = torch.tensor([[columns.ids[index] for index in path]])
            with torch.no_grad():
                alone = chosen(input_ids=ids, use_cache=False).logits[0]
            # Llama's norms compute in float32 whatever the weights are.
            assert float((logits[row, path] - alone).abs().max()) <= 1e-5


def leaves(packed: PackedTree) -> list[int]:
    """Tokens of the row that no other one follows."""
    columns = packed.columns()
    inner = set(columns.parents)
    return [token for token in range(len(columns.ids)) if token not in inner]


def test_a_loss_on_the_row_itself_is_the_trainers(batch: Batch) -> None:
    """What docs/how-to/tree-packing.md tells a trainer of one's own to do."""
    records: Any = batch.actor("tree")
    expected, _ = loss_and_gradient(batch.model, records)
    total = 0.0
    for tree in records:
        columns = tree.columns()
        with torch.no_grad():
            logits = batch.model(**packed_inputs(batch.model, [tree])).logits[0]
        log_probs = torch.log_softmax(logits / tree.temperature, dim=-1)
        for token, mask in enumerate(columns.loss_mask):
            if mask:
                now = log_probs[columns.parents[token], columns.ids[token]]
                ratio = float(torch.exp(now - columns.log_probs[token]))
                clipped = min(max(ratio, 0.8), 1.28)
                weight = columns.weights[token]
                total -= min(ratio * weight, clipped * weight)
    assert total / 2 == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_trainer_counts_what_it_computes(batch: Batch, packing: str) -> None:
    records: Any = batch.actor(packing)
    trainer = ActorTrainer(copy.deepcopy(batch.model), ActorSettings(minibatches=1))
    found = trainer.update(records, seed=0)
    distinct = distinct_tokens([row.tokens for row in as_rows(records)])
    assert found["actor_tokens_distinct"] == distinct
    assert found["actor_tokens_computed"] >= distinct
    assert found["eta_learn"] >= 0.95


class Deaf(torch.nn.Module):
    """Ignores the mask that it is given."""

    dtype = torch.float64
    device = torch.device("cpu")

    def get_input_embeddings(self) -> Any:
        return model("gpt2", torch.float64).get_input_embeddings()

    def forward(self, input_ids: Any, **_: Any) -> Any:
        return model("gpt2", torch.float64)(input_ids=input_ids)


def test_a_model_that_ignores_the_mask_is_refused_by_name() -> None:
    rng = random.Random(0)
    tree = random_tree(rng, nodes=6)
    with pytest.raises(ConfigError, match="path_records"):
        packed_inputs(Deaf(), [pack_tree(tree, random_credit(tree, rng))])
