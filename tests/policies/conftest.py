"""Tiny random models beside the shipped tokenizer, and full-recompute references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from focus.models import BUILTIN
from focus.policies._engine.sampler import Law, processed_log_probs
from focus.policies.transformers import TransformersPolicy
from focus.rendering import load_tokenizer
from focus.sampling import Sampling

torch.set_num_threads(1)


def build_folder(folder: Path, *, seed: int, context: int = 128, **changes: Any) -> Path:
    """A random two-layer Llama with grouped heads; logits are spread out on purpose."""
    torch.manual_seed(seed)
    tokenizer = load_tokenizer(BUILTIN)
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "initializer_range": 0.3,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_folder(tmp_path_factory.mktemp("models") / "tiny", seed=0)


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_folder(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture(scope="session")
def endless_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names an end token that never comes: replies run to their limit."""
    return build_folder(tmp_path_factory.mktemp("models") / "endless", seed=2, context=4096)


Recompute = Callable[[TransformersPolicy, Sequence[int], Sequence[int], Sampling], list[float]]


@pytest.fixture(scope="session")
def recompute() -> Recompute:
    """Teacher-forced log-probs by one plain forward pass over the whole sequence."""

    def scores(
        policy: TransformersPolicy, prefix: Sequence[int], ids: Sequence[int], sampling: Sampling
    ) -> list[float]:
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([[*prefix, *ids]])).logits[0]
        rows = logits[len(prefix) - 1 : -1]
        log_probs = processed_log_probs(rows, [Law(*sampling.law)] * len(ids))
        return [log_probs[i, token].item() for i, token in enumerate(ids)]

    return scores
