"""Flex attention sees what the additive mask shows, and is used only where it works."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from focus.models.flex import block_mask, can_flex, switched_to_flex
from focus.models.tree_attention import TREE_TOKENS, tree_batches
from focus.records.prefix_tree import prefix_trees
from focus.tokens import TokenIds

torch.set_num_threads(1)


def family(*, size: int, seed: int, length: int = 6) -> list[TokenIds]:
    rng = random.Random(seed)
    found: list[TokenIds] = [tuple(rng.randrange(size) for _ in range(length))]
    for _ in range(20):
        parent = rng.choice(found)
        cut = rng.randrange(1, len(parent) + 1)
        tail = (rng.randrange(size) for _ in range(rng.randrange(1, length)))
        found.append((*parent[:cut], *tail))
    return found


def llama(*, hidden: int = 64) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).eval()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("seed", range(5))
def test_it_attends_as_the_additive_mask_does(seed: int) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    (tree,) = prefix_trees(family(size=9, seed=seed), most_tokens=10_000)
    ends = torch.tensor([tree.ends, tree.ends])
    query, key, value = (torch.randn(2, 2, len(tree.ids), 8) for _ in range(3))
    place = torch.arange(len(tree.ids))
    seen = (place[None, :] <= place[:, None]) & (place[:, None] < ends[0][None, :])
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    found = flex_attention(query, key, value, block_mask=block_mask(ends))
    assert torch.allclose(found, expected, atol=1e-5)


def test_it_is_not_tried_on_a_processor_nor_in_double_precision() -> None:
    assert not can_flex(llama())
    assert not can_flex(llama().double())


def test_a_model_that_cannot_is_left_as_it_was() -> None:
    model = llama()
    before = model.config._attn_implementation

    def fails() -> bool:
        raise RuntimeError("no kernel")

    assert not switched_to_flex(model, fails)
    assert not switched_to_flex(model, lambda: False)
    assert model.config._attn_implementation == before
    assert switched_to_flex(model, lambda: True)
    assert model.config._attn_implementation == "flex_attention"


def test_wider_models_take_larger_trees() -> None:
    sequences = family(size=64, seed=0, length=2 * TREE_TOKENS)
    for hidden, limit in ((64, TREE_TOKENS), (512, 6 * 512)):
        batches = tree_batches(llama(hidden=hidden), sequences, batch_tokens=100_000)
        sizes = [len(tree.ids) for batch in batches for tree in batch.trees]
        longest = max(map(len, sequences))
        assert max(sizes) <= max(limit, longest)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_a_large_tree_is_one_pass_with_the_same_loss_and_gradient() -> None:
    stem = tuple(random.Random(0).randrange(64) for _ in range(600))
    tails = family(size=64, seed=1, length=400)
    sequences = [(*stem, *tail) for tail in tails]
    plain = llama().cuda()
    flexed = copy.deepcopy(plain)
    results = []
    for model, may_flex in ((plain, False), (flexed, True)):
        batches = tree_batches(model, sequences, batch_tokens=16_384, may_flex=may_flex)
        total = 0.0
        for batch in batches:
            logits = model(**batch.inputs, use_cache=False).logits
            for row, tree in enumerate(batch.trees):
                for member, path in zip(tree.members, tree.paths, strict=True):
                    ids = torch.tensor(sequences[member][1:], device="cuda")
                    rows = torch.log_softmax(logits[row, list(path[:-1])], dim=-1)
                    total = total + rows.gather(1, ids[:, None]).sum()
        assert isinstance(total, torch.Tensor)
        (total / 1000).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        results.append((len(batches), float(total), gradient))
    (_, loss, gradient), (passes, same_loss, same) = results
    assert flexed.config._attn_implementation == "flex_attention"
    assert passes == 1
    assert same_loss == pytest.approx(loss, rel=1e-4)
    assert float((gradient - same).abs().max() / gradient.abs().max()) <= 1e-4
