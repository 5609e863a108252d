"""One pass over a prefix tree gives each sequence the states of its own pass."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from focus.models import resolve
from focus.models.tree_attention import tree_batches

torch.set_num_threads(1)


def builtin() -> Any:
    return AutoModelForCausalLM.from_pretrained(resolve("builtin"), dtype=torch.float64)


def llama() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).double()


def gpt2() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)).double()


def family(size: int, *, seed: int) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    found: list[tuple[int, ...]] = [tuple(rng.randrange(size) for _ in range(6))]
    for _ in range(20):
        parent = rng.choice(found)
        cut = rng.randrange(1, len(parent) + 1)
        found.append((*parent[:cut], *(rng.randrange(size) for _ in range(rng.randrange(1, 8)))))
    return found


@pytest.mark.parametrize("make", [builtin, llama, gpt2])
@pytest.mark.parametrize("batch_tokens", [1, 40, 100_000])
def test_every_path_has_the_logits_of_its_own_pass(make: Any, batch_tokens: int) -> None:
    model = make().eval()
    sequences = family(60, seed=batch_tokens)
    seen = set()
    with torch.no_grad():
        for batch in tree_batches(model, sequences, batch_tokens=batch_tokens):
            logits = model(**batch.inputs, use_cache=False).logits
            for row, tree in enumerate(batch.trees):
                for member, path in zip(tree.members, tree.paths, strict=True):
                    alone = model(input_ids=torch.tensor([sequences[member]])).logits[0]
                    assert float((logits[row, list(path)] - alone).abs().max()) < 1e-9
                    seen.add(member)
    assert seen == set(range(len(sequences)))


def test_shared_prefixes_are_computed_once() -> None:
    model = llama()
    sequences = [(1, 2, 3, index) for index in range(10, 20)]
    [batch] = tree_batches(model, sequences, batch_tokens=1000)
    assert batch.inputs["input_ids"].shape == (1, 13)


class Deaf(torch.nn.Module):
    """Ignores the mask: attends to everything before, like a model with its own masking."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = llama()

    dtype = torch.float64
    device = torch.device("cpu")

    def get_input_embeddings(self) -> Any:
        return self.inner.get_input_embeddings()

    def forward(self, input_ids: Any, **_: Any) -> Any:
        return self.inner(input_ids=input_ids)


def test_a_model_that_ignores_the_mask_gets_its_sequences_one_by_one() -> None:
    sequences = [(1, 2, 3), (1, 2, 4)]
    batches = tree_batches(Deaf(), sequences, batch_tokens=1000)
    assert [len(tree.members) for batch in batches for tree in batch.trees] == [1, 1]
