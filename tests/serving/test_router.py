"""The real sglang-router in front of workers: failover, repeated sampling, the breaker.

The workers are small fakes of this process, so that they can die at a chosen moment; one
test puts the server of `focus serve` there.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Execution,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
)
from focus.errors import TransientError
from focus.execution import RequestCounts
from focus.policies.base import Policy
from focus.policies.sglang import SGLangPolicy
from focus.policies.transformers import TransformersPolicy
from focus.records.codec import encode_actor
from focus.serving.run import bind
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy

from ..policies.loopback import Answer, Ask, ByteTokenizer, FakeEngine, Loopback
from .conftest import on_socket, running

pytest.importorskip("sglang_router", reason="sglang-router has no wheel for this platform")
pytestmark = pytest.mark.anyio


class Worker(FakeEngine):
    """A walking engine that a router takes for SGLang; `before` may answer in its place."""

    def __init__(self, before: Callable[[Worker], Answer | bytes | str | None] = lambda _: "go"):
        super().__init__(ScriptedPolicy(walk_script(12)))
        self.before = before
        self.sampled_tokens = 0
        self.sampled: dict[str, tuple[int, ...]] = {}
        self.asked = 0

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path == "/health":
            return Answer(b"fine")
        if ask.path in ("/server_info", "/get_server_info"):
            return Answer.of({"model_path": "", "served_model_name": "walk"})
        if ask.path in ("/model_info", "/get_model_info"):
            return Answer.of({"model_path": "", "weight_version": self.version})
        if ask.path == "/generate":
            self.asked += 1
            body = await self.reply(ask.json)
            self.sampled_tokens += len(body["output_ids"])
            self.sampled[ask.json["rid"].partition("~")[0]] = tuple(body["output_ids"])
            instead = self.before(self)
            return Answer.of(body) if isinstance(instead, str) else instead
        return Answer(status=404)


def free_port() -> int:
    with bind("127.0.0.1", 0) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def routed(*urls: str, **options: Any) -> AsyncIterator[str]:
    """The address of a router in front of `urls`, once it has found them all."""
    port, metrics = free_port(), free_port()
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--prometheus-port", str(metrics)]
    command += ["--policy", "round_robin", "--log-level", "error", "--worker-urls", *urls]
    command += ["--retry-initial-backoff-ms", "10", "--health-check-interval-secs", "1"]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = await asyncio.create_subprocess_exec(*command, **quiet)
    try:
        await _ready(f"http://127.0.0.1:{port}", len(urls))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def _ready(url: str, workers: int) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        with anyio.fail_after(60):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    listed = await client.get("/workers")
                    if listed.is_success and listed.json()["total"] == workers:
                        return
                await anyio.sleep(0.05)


def policy_at(url: str, **options: Any) -> SGLangPolicy:
    return SGLangPolicy(url, tokenizer=ByteTokenizer(), context_limit=4096, **options)


async def collect(policy: Policy, *, retry: RetryPolicy | None = None) -> Collection:
    agent = Agent(
        policy,
        parser=Segments(3),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=13),
        execution=Execution(retry=retry or RetryPolicy(base_s=0.05), deadline_s=60),
    )
    search = Search.two_phase(tokens=200, concurrency=4)
    async with Collector(agent=agent, env=WalkEnv(), search=search) as collector:
        return await collector.collect(Problem(id="walk", prompt="Walk."))


def records(collection: Collection) -> list[Any]:
    return list(map(encode_actor, collection.actor))


async def test_a_tree_over_two_workers_is_the_tree_of_one_process() -> None:
    one, two = Worker(), Worker()
    async with (
        Loopback(one) as a,
        Loopback(two) as b,
        routed(a.url, b.url) as url,
        policy_at(url) as policy,
    ):
        collection = await collect(policy)
    assert records(collection) == records(await collect(ScriptedPolicy(walk_script(12))))
    assert min(one.asked, two.asked) > 0
    keys = {ask.headers["x-smg-routing-key"] for ask in a.asked("/generate")}
    assert len(keys) == 1


async def test_a_worker_that_dies_inside_a_tree_is_survived_and_nothing_doubles() -> None:
    """Its open requests are sampled again elsewhere; the books count what was used.

    Where the router passes the failure on, the next try draws anew, as tries do.
    """
    dying = Worker(lambda worker: "go" if worker.asked <= 5 else None)
    steady = Worker()
    async with (
        Loopback(dying) as a,
        Loopback(steady) as b,
        routed(a.url, b.url) as url,
        policy_at(url) as policy,
    ):
        collection = await collect(policy)
    sampled = dying.sampled | steady.sampled
    for node in collection.tree.edges():
        assert node.incoming.ids == sampled[node.incoming.provenance.request_id]
    books = collection.ledger
    assert collection.failures == ()
    assert books.requests_accepted == len(collection.tree) - 1
    assert books.requests_sent == books.requests_accepted + books.requests_failed
    assert books.tokens_generated == collection.tree.sampled_tokens()
    assert dying.asked > 5
    assert dying.sampled_tokens + steady.sampled_tokens > books.tokens_generated


async def test_a_reply_lost_at_one_worker_is_sampled_twice_and_counted_once() -> None:
    """At least once: the router repeats a 500 elsewhere, and only it knows."""
    losing = Worker(lambda worker: Answer(b"lost", 500))
    steady = Worker()
    options = {"retry_max_retries": 3, "cb_failure_threshold": 1000}
    async with (
        Loopback(losing) as a,
        Loopback(steady) as b,
        routed(a.url, b.url, **options) as url,
        policy_at(url) as policy,
    ):
        collection = await collect(policy)
    books = collection.ledger
    assert books.tokens_generated == collection.tree.sampled_tokens()
    assert books.tokens_wasted == 0
    assert losing.sampled_tokens > 0
    rids = [ask.json["rid"] for ask in a.asked("/generate")]
    assert set(rids) & {ask.json["rid"] for ask in b.asked("/generate")}


async def test_no_available_workers_is_waited_out_within_the_budget() -> None:
    """The breaker opens after failures and answers 503 until its time is over."""
    sick = math.inf

    def before(worker: Worker) -> Answer | str:
        nonlocal sick
        sick -= 1
        return Answer(b"sick", 500) if sick >= 0 else "go"

    worker, statuses = Worker(before), []
    options = {
        "retry_max_retries": 1,
        "cb_failure_threshold": 2,
        "cb_timeout_duration_secs": 1,
        "cb_success_threshold": 1,
    }
    async with Loopback(worker) as a, routed(a.url, **options) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            body = {"input_ids": [5], "sampling_params": {"max_new_tokens": 1}, "rid": "x"}
            while 503 not in statuses:
                reply = await client.post("/generate", json=body)
                statuses.append(reply.status_code)
        assert "no_available_workers" in reply.text
        assert set(statuses) == {500, 503}
        sick = 1  # should the breaker's time be over already, the next request fails itself
        async with policy_at(url) as policy:
            collection = await collect(policy, retry=RetryPolicy(attempts=12, base_s=0.05))
    assert collection.failures == ()
    assert collection.ledger.requests_failed > 0


async def test_a_router_without_workers_is_a_bounded_failure_that_names_it() -> None:
    async with Loopback(Worker()) as a, routed(a.url) as url:
        await a.__aexit__()
        execution = Execution(retry=RetryPolicy(attempts=3, base_s=0.01), deadline_s=60)
        counts = RequestCounts()
        async with policy_at(url, version="scripted") as policy:
            with pytest.raises(TransientError, match="attempts=3") as caught:
                await execution.generate(
                    policy,
                    (1,),
                    Sampling(max_tokens=1),
                    name="r",
                    tree="t",
                    version="scripted",
                    counts=counts,
                )
    assert url in str(caught.value)
    assert execution.shared.pool.statistics.in_use == 0


async def test_the_served_engine_stands_behind_it(endless: Path) -> None:
    """Version, cached tokens and aborts pass; a cancelled request leaves the engine."""
    engine = TransformersPolicy(endless, device="cpu", version="step-1")
    async with (
        on_socket(engine, model=str(endless)) as worker,
        routed(worker) as url,
        SGLangPolicy(url, model="builtin", abort_at_workers=True) as policy,
        httpx.AsyncClient(base_url=worker) as client,
    ):
        await policy.refresh()
        assert policy.version == "step-1"
        prefix = tuple(range(5, 45))
        first = await policy.generate(prefix, Sampling(max_tokens=4, top_k=1))
        again = await policy.generate(prefix + first.ids, Sampling(max_tokens=4, top_k=1))
        assert again.cached_tokens == len(prefix) + 4
        task = asyncio.create_task(policy.generate((5, 6), Sampling(max_tokens=60_000, top_k=1)))
        await running(client, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await running(client, 0)
