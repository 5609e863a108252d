"""`Critic.served` against a real vLLM, where one is installed in an environment of its own.

FOCUS_VLLM_PYTHON names that environment's interpreter (`focus.testing.vllm_process`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification

from focus import Critic
from focus.errors import FatalError
from focus.models import BUILTIN
from focus.records.records import CriticContext
from focus.rendering import load_tokenizer
from focus.testing.vllm_process import vllm_server

PYTHON = os.environ.get("FOCUS_VLLM_PYTHON", "")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not PYTHON, reason="FOCUS_VLLM_PYTHON does not name an interpreter with vLLM"
    ),
]

NAME = "critic-0001"
IDS = [tuple(range(5, 5 + n)) for n in (1, 2, 7, 40, 300)]
CONTEXTS = [CriticContext(renderer="token_chunk/1", text="", ids=ids) for ids in IDS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with one label."""
    folder = tmp_path_factory.mktemp("vllm") / "model"
    tokenizer = load_tokenizer(BUILTIN)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        num_labels=1,
        pad_token_id=0,
    )
    classifier = Qwen3ForSequenceClassification(config)
    torch.nn.init.normal_(classifier.score.weight, std=0.5)
    classifier.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    """A vLLM server of that model, ready to answer."""
    words = "--runner pooling --max-model-len 1024 --max-num-seqs 8 --block-size 32"
    with vllm_server(PYTHON, model, served_model=NAME, words=words.split()) as address:
        yield address


@pytest.mark.parametrize("protocol", ["vllm", "vllm-pooling"])
async def test_values_are_those_of_the_model(model: Path, url: str, protocol: str) -> None:
    own = Qwen3ForSequenceClassification.from_pretrained(model, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = [torch.sigmoid(own(torch.tensor([ids])).logits).item() for ids in IDS]
    critic = Critic.served(url, version=NAME, protocol=protocol)  # type: ignore[arg-type]
    try:
        assert await critic.score(CONTEXTS) == pytest.approx(expected, abs=1e-5)
    finally:
        await critic.aclose()


async def test_another_version_is_fatal(url: str) -> None:
    critic = Critic.served(url, version="critic-0002", protocol="vllm")
    try:
        with pytest.raises(FatalError, match=r"critic-0002.* does not exist"):
            await critic.score(CONTEXTS)
    finally:
        await critic.aclose()
