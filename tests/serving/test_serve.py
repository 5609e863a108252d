"""`focus serve` end to end: the same ids and log-probs over HTTP as in process."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from focus import (
    Sampling,
)
from focus.errors import Refused
from focus.models import BUILTIN
from focus.policies.base import Policy, RequestTag
from focus.policies.convention import LogProbConvention
from focus.policies.sglang import SGLangPolicy
from focus.policies.transformers import TransformersPolicy
from focus.testing.policies import Wrapper
from focus.tokens import Generation, TokenIds

from .conftest import COMMAND, PROBLEM, collector_over, running, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
async def policy(url: str) -> AsyncIterator[SGLangPolicy]:
    async with SGLangPolicy(url, model="builtin", context_limit=512) as policy:
        yield policy


def prompt_of(policy: Policy) -> TokenIds:
    return policy.render(PROBLEM.messages)


# --- sampling ---------------------------------------------------------------------------


async def test_ids_and_log_probs_equal_those_of_the_engine_in_process(
    policy: SGLangPolicy,
) -> None:
    laws = [{"temperature": 1.0}, {"temperature": 0.6}, {"temperature": 1.4, "top_k": 9}]
    jobs = [
        (prompt_of(policy)[: 4 + k], Sampling(max_tokens=5 + 2 * k, seed=k, **laws[k % 3]))  # type: ignore[arg-type]
        for k in range(18)
    ]
    over_http = await asyncio.gather(*(policy.generate(*job) for job in jobs))
    async with TransformersPolicy(BUILTIN, device="cpu") as local:
        assert policy.tokenizer_hash == local.tokenizer_hash
        assert policy.vocab_size == local.vocab_size
        in_process = await asyncio.gather(*(local.generate(*job) for job in jobs))
        assert {reply.version for reply in over_http} == {local.version}
    for remote, near in zip(over_http, in_process, strict=True):
        assert remote.ids == near.ids
        assert remote.finish == near.finish
        # other requests share the passes, so float32 sums differ in their last bits
        assert remote.log_probs == pytest.approx(near.log_probs, abs=1e-4)


async def test_a_probe_finds_all_it_asks_for(url: str) -> None:
    async with SGLangPolicy(url, model="builtin", train_temperature=0.7) as policy:
        report = await policy.probe()
    assert report.convention is LogProbConvention.PROCESSED
    assert report.version.startswith("builtin@")
    assert report.context_limit == policy.context_limit == 512
    assert Path(report.model) == BUILTIN


class Noting(Wrapper):
    """Keeps prefix length and cached tokens of every reply."""

    def __init__(self, inner: Policy) -> None:
        super().__init__(inner)
        self.seen: list[tuple[int, int | None]] = []

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        reply = await self.inner.generate(prefix, sampling, tag=tag)
        self.seen.append((len(prefix), reply.cached_tokens))
        return reply


async def test_children_of_a_tree_find_their_prefix_cached(policy: SGLangPolicy) -> None:
    """B25: at least nine tenths of every child's prefix."""
    noting = Noting(policy)
    async with collector_over(noting) as collector:
        collection = await collector.collect(PROBLEM)
    root = len(prompt_of(policy))
    children = [(length, cached or 0) for length, cached in noting.seen if length > root]
    assert len(children) > 20
    assert min(cached / length for length, cached in children) >= 0.9
    books = collection.ledger
    assert books.tokens_submitted == sum(length for length, _ in noting.seen)
    assert books.tokens_cached == sum(cached or 0 for _, cached in noting.seen)


# --- refusals ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"input_ids": [1], "input_ids": [2]}',
        b'{"input_ids": [NaN]}',
        b'{"text": "2+2?"}',
        b'{"input_ids": [999999]}',
        b'{"input_ids": [1], "sampling_params": {"max_new_tokens": 512}}',
    ],
)
async def test_a_bad_request_is_told_what_is_wrong(
    client: httpx.AsyncClient, content: bytes
) -> None:
    reply = await client.post("/generate", content=content)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"]


async def test_what_the_engine_refuses_is_refused_over_http(url: str) -> None:
    async with SGLangPolicy(url, model="builtin") as policy:
        with pytest.raises(Refused, match="do not fit into the context of 512"):
            await policy.generate((1,) * 500, Sampling(max_tokens=13))


async def test_paths_that_do_not_exist_are_404(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/chat/completions")).status_code == 404
    assert (await client.get("/generate")).status_code == 405


# --- what a host asks -------------------------------------------------------------------


async def test_the_questions_of_slime_and_of_routers_are_answered(
    client: httpx.AsyncClient, url: str
) -> None:
    for path in ("/health", "/health_generate"):
        assert (await client.get(path)).status_code == 200
    for path in ("/model_info", "/get_model_info"):
        info = (await client.get(path)).json()
        assert Path(info["model_path"]) == BUILTIN
        assert info["weight_version"].startswith("builtin@")
    for path in ("/server_info", "/get_server_info"):
        info = (await client.get(path)).json()
        assert (info["max_req_input_len"], info["max_running_requests"]) == (512, 16)
    workers = (await client.get("/workers")).json()
    assert [worker["url"] for worker in workers["workers"]] == [url]
    loads = (await client.get("/v1/loads", params={"include": "core"})).json()
    assert loads["loads"][0]["num_total_reqs"] == 0
    assert (await client.post("/flush_cache")).status_code == 200


# --- the process ------------------------------------------------------------------------


async def test_it_stops_when_told_even_while_it_samples(endless: Path) -> None:
    with serving("--model", str(endless), "--weight-version", "step-1") as server:
        assert server.line == f"focus serve: {endless} (step-1) at {server.url}\n"
        body = {"input_ids": [5], "sampling_params": {"max_new_tokens": 60000, "top_k": 1}}
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            asking = asyncio.create_task(client.post("/generate", json=body))
            await running(client, 1)
            assert await asyncio.to_thread(server.stop) == 0
            (outcome,) = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(outcome, httpx.TransportError) or outcome.status_code == 500
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""


def test_a_port_in_use_and_a_model_that_is_none_are_one_line_errors(url: str) -> None:
    port = url.rpartition(":")[2]
    for options, text in (
        (("--port", port), f"cannot listen on 127.0.0.1 port {port}"),
        (("--port", "0", "--model", "/nowhere"), "no config.json"),
    ):
        done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert text in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
