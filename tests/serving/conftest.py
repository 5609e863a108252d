"""`focus serve` as a process, and its application on a socket of this process."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest
import torch
import uvicorn
from transformers import LlamaConfig, LlamaForCausalLM

from focus import (
    Agent,
    Allowance,
    Collector,
    Execution,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
)
from focus.models import BUILTIN
from focus.policies.base import Policy
from focus.policies.transformers import TransformersPolicy
from focus.rendering import load_tokenizer
from focus.serving.run import bind, url_of
from focus.serving.sglang import sglang_app
from focus.testing.envs import WalkEnv

PROBLEM = Problem(id="sum", prompt="Compute 37 + 45 - 18.")
COMMAND = [sys.executable, "-c", "from focus.cli.main import app; app()", "serve"]


@dataclass(frozen=True)
class Served:
    """A running server: its process and what its one line says."""

    process: subprocess.Popen[str]
    line: str

    @property
    def url(self) -> str:
        found = re.search(r"http://\S+", self.line)
        assert found is not None, self.line
        return found.group()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=500)


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Served]:
    """`focus serve` on a free port, ready to answer; ended with the block."""
    command = [*COMMAND, "--protocol", "sglang", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Served(process, process.stdout.readline())
        finally:
            if process.poll() is None:
                process.kill()


@contextlib.asynccontextmanager
async def on_socket(policy: TransformersPolicy, *, model: str = "m") -> AsyncIterator[str]:
    """The application of `focus serve` on this loop; its address. Closes the policy."""
    ready = asyncio.Event()
    app = sglang_app(policy, model=model, max_batch=16, on_ready=ready.set)
    with bind("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await ready.wait()
        yield url_of(listener)
        server.should_exit = True
        await task


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model that never ends a reply by itself when it is greedy."""
    folder = tmp_path_factory.mktemp("models") / "endless"
    tokenizer = load_tokenizer(BUILTIN)
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=65536,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[tokenizer.eos_token_id] = 0.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with serving("--model", "builtin", "--max-batch", "16") as server:
        yield server
        assert server.stop(signal.SIGINT) == 0


@pytest.fixture(scope="session")
def url(served: Served) -> str:
    return served.url


async def running(client: httpx.AsyncClient, count: int) -> None:
    """Wait until so many requests run."""
    with anyio.fail_after(60):
        while True:
            load = (await client.get("/v1/loads")).json()["loads"][0]
            if load["num_total_reqs"] == count:
                return


def collector_over(policy: Policy) -> Collector:
    agent = Agent(
        policy,
        parser=Segments(8),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=64),
        execution=Execution(retry=RetryPolicy(base_s=0.0)),
    )
    search = Search.two_phase(tokens=600, concurrency=4)
    return Collector(agent=agent, env=WalkEnv(), search=search)
