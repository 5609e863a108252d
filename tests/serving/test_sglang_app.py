"""The server's own behaviour on a socket: order, aborts, clients that leave, new weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from focus import (
    Sampling,
)
from focus.errors import Aborted, CollectionFailed, FatalError
from focus.policies.base import Policy, RequestTag
from focus.policies.sglang import SGLangPolicy
from focus.policies.transformers import TransformersPolicy
from focus.testing.policies import Wrapper
from focus.tokens import Generation, TokenIds

from .conftest import PROBLEM, collector_over, on_socket, running

pytestmark = pytest.mark.anyio

ENDLESS = Sampling(temperature=1.0, top_k=1, max_tokens=60_000)


@pytest.fixture
async def url(endless: Path) -> AsyncIterator[str]:
    engine = TransformersPolicy(endless, device="cpu", version="step-1")
    async with on_socket(engine, model=str(endless)) as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


async def test_a_list_of_prompts_and_copies_is_answered_in_order(
    client: httpx.AsyncClient,
) -> None:
    params = {"max_new_tokens": 3, "n": 2, "sampling_seed": 4}
    body = {"input_ids": [[5, 6], [7, 8, 9]], "sampling_params": params, "rid": "many"}
    replies = (await client.post("/generate", json=body)).json()
    assert [reply["meta_info"]["id"] for reply in replies] == [f"many_{k}" for k in range(4)]
    assert [reply["meta_info"]["prompt_tokens"] for reply in replies] == [2, 2, 3, 3]
    assert "output_token_logprobs" not in replies[0]["meta_info"]
    one = {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 3, "sampling_seed": 5}}
    assert (await client.post("/generate", json=one)).json()["output_ids"] == replies[1][
        "output_ids"
    ]


@pytest.mark.parametrize("body", [{"rid": "long"}, {"abort_all": True}])
async def test_an_aborted_request_ends_as_an_abort(
    url: str, client: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    async with SGLangPolicy(url, model="builtin") as policy:
        tag = RequestTag(request="long", tree="t")
        task = asyncio.create_task(policy.generate((5, 6), ENDLESS, tag=tag))
        await running(client, 1)
        assert (await client.post("/flush_cache")).status_code == 400
        assert (await client.post("/abort_request", json={"rid": "other"})).status_code == 200
        assert (await client.post("/abort_request", json=body)).status_code == 200
        with pytest.raises(Aborted, match="aborted on request"):
            await task
    await running(client, 0)
    assert (await client.post("/flush_cache")).status_code == 200
    assert (await client.post("/abort_request", json={})).status_code == 400


async def test_a_client_that_goes_away_takes_its_requests_along(
    url: str, client: httpx.AsyncClient
) -> None:
    params = {"max_new_tokens": 60_000, "top_k": 1, "n": 3}
    async with httpx.AsyncClient(base_url=url, timeout=60) as other:
        body = {"input_ids": [5, 6], "sampling_params": params}
        task = asyncio.create_task(other.post("/generate", json=body))
        await running(client, 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await running(client, 0)


async def test_a_cancelled_call_of_the_policy_frees_the_engine(
    url: str, client: httpx.AsyncClient
) -> None:
    async with SGLangPolicy(url, model="builtin") as policy:
        task = asyncio.create_task(policy.generate((5, 6), ENDLESS))
        await running(client, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await running(client, 0)
        assert (await policy.generate((5, 6), Sampling(max_tokens=3))).ids


# --- new weights ------------------------------------------------------------------------


class Publishing(Wrapper):
    """Publishes new weights once the tree has had `after` replies."""

    def __init__(self, inner: Policy, client: httpx.AsyncClient, *, after: int) -> None:
        super().__init__(inner)
        self.client = client
        self.left = after

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        reply = await self.inner.generate(prefix, sampling, tag=tag)
        self.left -= 1
        if self.left == 0:
            body = {"model_path": "builtin", "weight_version": "step-2"}
            done = await self.client.post("/update_weights_from_disk", json=body)
            assert done.json()["success"], done.text
        return reply


async def test_new_weights_end_the_tree_that_runs_and_begin_the_next() -> None:
    """A6: no sample of the mixed tree; the next one is pinned to the new weights."""
    engine = TransformersPolicy("builtin", device="cpu", version="step-1")
    async with (
        on_socket(engine) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
        SGLangPolicy(url, model="builtin", context_limit=512) as policy,
    ):
        publishing = Publishing(policy, client, after=6)
        with pytest.raises(CollectionFailed, match="pinned 'step-1', replied 'step-2'") as caught:
            async with collector_over(publishing) as collector:
                await collector.collect(PROBLEM)
        assert isinstance(caught.value.__cause__, FatalError)
        async with collector_over(publishing) as collector:
            collection = await collector.collect(PROBLEM)
    assert collection.tree.header.policy_version == "step-2"
    assert len(collection.actor) > 10


async def test_new_weights_wait_for_running_requests_or_abort_them(
    url: str, client: httpx.AsyncClient, endless: Path
) -> None:
    body = {"model_path": str(endless), "weight_version": "step-2"}
    async with SGLangPolicy(url, model="builtin") as policy:
        task = asyncio.create_task(policy.generate((5, 6), ENDLESS))
        await running(client, 1)
        waiting = asyncio.create_task(client.post("/update_weights_from_disk", json=body))
        aborting = body | {"weight_version": "step-3", "abort_all_requests": True}
        assert (await client.post("/update_weights_from_disk", json=aborting)).status_code == 200
        assert (await waiting).status_code == 200
        with pytest.raises(Aborted):
            await task
        assert (await policy.generate((5,), Sampling(max_tokens=1))).version in ("step-2", "step-3")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model_path": "builtin"},
        {"model_path": "/nowhere", "weight_version": "w"},
        [],
        {"model_path": "builtin", "weight_version": "misfit"},
    ],
    ids=["empty", "no version", "no folder", "no object", "misfit"],
)
async def test_weights_that_cannot_be_taken_change_nothing(
    client: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    before = (await client.get("/model_info")).json()
    reply = await client.post("/update_weights_from_disk", json=body)
    assert reply.status_code == 400
    assert reply.json()["success"] is False
    assert (await client.get("/model_info")).json() == before


async def test_a_closed_engine_is_unavailable(endless: Path) -> None:
    engine = TransformersPolicy(endless, device="cpu")
    async with on_socket(engine) as url, httpx.AsyncClient(base_url=url) as client:
        await engine.aclose()
        assert (await client.post("/generate", json={"input_ids": [5]})).status_code == 503
        assert (await client.get("/health_generate")).status_code == 503
        assert (await client.get("/health")).status_code == 200
