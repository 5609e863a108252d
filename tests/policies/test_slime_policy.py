"""The policy behind Slime's router: what it takes from Slime, borrows, and leaves alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from focus.errors import (
    Aborted,
    ConfigError,
    CorruptReply,
    FatalError,
    Refused,
    RequestError,
    TransientError,
)
from focus.execution import Execution, RequestCounts, RetryPolicy
from focus.models import BUILTIN
from focus.policies.base import RequestTag
from focus.policies.slime import SlimeHost, SlimePolicy
from focus.problem import Message
from focus.sampling import Sampling
from focus.tokens import Generation

from .loopback import Answer, Ask, FakeEngine, Loopback

pytestmark = pytest.mark.anyio

TAG = RequestTag(request="run/0/0/ab/3/1/1", tree="run/0/0/ab")
SAMPLING = Sampling(temperature=0.7, max_tokens=4)


def slime_args(port: int = 1, **changes: Any) -> SimpleNamespace:
    args = {
        "hf_checkpoint": str(BUILTIN),
        "sglang_router_ip": "127.0.0.1",
        "sglang_router_port": port,
        "rollout_temperature": 0.7,
        "rollout_max_context_len": 8192,
        "use_distributed_post": False,
    }
    return SimpleNamespace(**{**args, **changes})


async def execute(policy: SlimePolicy) -> tuple[Generation | RequestError, RequestCounts]:
    counts = RequestCounts()
    execution = Execution(retry=RetryPolicy(base_s=0.0))
    try:
        reply = await execution.generate(
            policy, (1, 2), SAMPLING, name="r", tree="t", version="scripted", counts=counts
        )
    except RequestError as error:
        return error, counts
    return reply.generation, counts


async def test_everything_comes_from_slimes_arguments() -> None:
    policy = SlimePolicy(slime_args(30000))
    assert policy.url == "http://127.0.0.1:30000"
    assert policy.train_temperature == 0.7
    assert policy.context_limit == 8192
    assert policy.decode(policy.render([Message("user", "2+2?")])).endswith("assistant\n")
    bracketed = SlimePolicy(slime_args(sglang_router_ip="[::1]"))
    assert bracketed.url == "http://[::1]:1"


@pytest.mark.parametrize(
    ("rollout", "engine", "limit"),
    [(8192, None, 8192), (8192, 8192, 8186), (4096, 8192, 4096), (None, 512, 506), (0, 0, None)],
)
def test_the_context_is_the_tighter_of_rollout_and_engine(
    rollout: int | None, engine: int | None, limit: int | None
) -> None:
    args = slime_args(rollout_max_context_len=rollout, sglang_context_length=engine)
    assert SlimePolicy(args).context_limit == limit


@pytest.mark.parametrize(
    "name", ["hf_checkpoint", "sglang_router_ip", "sglang_router_port", "rollout_temperature"]
)
def test_a_missing_argument_is_named(name: str) -> None:
    flag = "--" + name.replace("_", "-")
    for args in (slime_args(**{name: None}), slime_args()):
        if getattr(args, name) is not None:
            delattr(args, name)
        with pytest.raises(ConfigError, match=flag):
            SlimePolicy(args)


def test_threads_that_start_together_share_one_tokenizer() -> None:
    """B52, B53: loaded once, and rendering from many threads gives the serial result."""
    start, found = threading.Barrier(16), []
    problem = [Message("user", "Compute 37 + 45 - 18.")]

    def run() -> None:
        start.wait()
        policy = SlimePolicy(slime_args())
        found.append((policy.tokenizer, [policy.render(problem) for _ in range(8)]))

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    serial = SlimePolicy(slime_args()).render(problem)
    assert len(found) == 16
    assert len({id(tokenizer) for tokenizer, _ in found}) == 1
    assert all(rendered == [serial] * 8 for _, rendered in found)


async def test_slimes_client_is_borrowed_and_left_open() -> None:
    async with Loopback(FakeEngine()) as loopback, httpx.AsyncClient(timeout=None) as client:
        host = SlimeHost(client=client)
        async with SlimePolicy(slime_args(loopback.port), host=host) as policy:
            reply = await policy.generate((1, 2), SAMPLING, tag=TAG)
        assert not client.is_closed
        assert (reply.request_id, reply.version) == (TAG.request, "scripted")
        (ask,) = loopback.asks
        assert ask.headers["x-smg-routing-key"] == TAG.tree
        assert (await client.get(loopback.url + "/model_info")).status_code == 200
        assert loopback.connections == 1


class SpreadPost:
    """Slime's `post`, as it behaves where requests are spread over actors."""

    def __init__(self, engine: FakeEngine | None = None, error: Exception | None = None) -> None:
        self.engine = engine or FakeEngine()
        self.error = error
        self.calls: list[tuple[str, dict[str, Any], int, Mapping[str, str]]] = []

    async def __call__(
        self,
        url: str,
        payload: dict[str, Any],
        max_retries: int = 60,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        self.calls.append((url, payload, max_retries, headers or {}))
        if self.error is not None:
            raise self.error
        body = await self.engine.reply(payload)
        return self.engine.change(len(self.calls), body)


async def test_spread_requests_go_once_through_slimes_post() -> None:
    post = SpreadPost()
    async with SlimePolicy(slime_args(7), host=SlimeHost(post=post), version="scripted") as policy:
        reply = await policy.generate((1, 2), SAMPLING, tag=TAG)
    assert isinstance(reply, Generation)
    ((url, payload, max_retries, headers),) = post.calls
    assert (url, max_retries) == ("http://127.0.0.1:7/generate", 1)
    assert payload["input_ids"] == [1, 2]
    assert headers == {"x-smg-routing-key": TAG.tree}


def status_error(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://127.0.0.1:7/generate")
    response = httpx.Response(status, text="no room", request=request)
    return httpx.HTTPStatusError("bad", request=request, response=response)


@pytest.mark.parametrize(
    ("error", "kind", "tries"),
    [
        (status_error(400), Refused, 1),
        (status_error(404), FatalError, 1),
        (status_error(503), TransientError, 5),
        (httpx.ConnectError("refused"), TransientError, 5),
        (RuntimeError("an actor died"), Refused, 1),
    ],
    ids=["400", "404", "503", "refused", "actor"],
)
async def test_errors_of_slimes_post_have_the_same_classes(
    error: Exception, kind: type, tries: int
) -> None:
    post = SpreadPost(error=error)
    async with SlimePolicy(slime_args(7), host=SlimeHost(post=post), version="scripted") as policy:
        found, counts = await execute(policy)
    assert type(found) is kind
    assert counts.sent == len(post.calls) == tries
    assert "POST http://127.0.0.1:7/generate" in str(found)


@pytest.mark.parametrize("body", ["<html>", None, [], {"meta_info": {"finish_reason": {}}}])
async def test_what_slimes_post_makes_of_a_bad_body_is_corrupt(body: Any) -> None:
    post = SpreadPost(FakeEngine(change=lambda number, reply: body))
    async with SlimePolicy(slime_args(7), host=SlimeHost(post=post), version="scripted") as policy:
        found, counts = await execute(policy)
    assert type(found) is CorruptReply
    assert counts.sent == 2


async def test_a_nan_that_slimes_post_lets_through_is_refused() -> None:
    """B19."""

    def change(number: int, body: dict[str, Any]) -> dict[str, Any]:
        body["meta_info"]["output_token_logprobs"][0][0] = float("nan")
        return body

    post = SpreadPost(FakeEngine(change=change))
    async with SlimePolicy(slime_args(7), host=SlimeHost(post=post), version="scripted") as policy:
        with pytest.raises(CorruptReply, match="log-prob nan at position 0"):
            await policy.generate((1, 2), SAMPLING)


async def test_once_slime_ends_its_rollout_nothing_more_is_sent() -> None:
    ending = False

    async def engine(ask: Ask) -> Answer | bytes | None:
        nonlocal ending
        ending = True
        return Answer.of({"meta_info": {"finish_reason": {"type": "abort"}}})

    async with Loopback(engine) as loopback:
        host = SlimeHost(is_aborted=lambda: ending)
        async with SlimePolicy(slime_args(loopback.port), host=host, version="scripted") as policy:
            first, counts = await execute(policy)
            second, _ = await execute(policy)
        assert len(loopback.asks) == 1
    assert type(first) is type(second) is Aborted
    assert isinstance(first, Aborted)
    assert first.is_final
    assert (counts.sent, counts.failed) == (2, 2)


async def test_a_cancelled_request_is_aborted_at_the_routers_workers() -> None:
    async def hang(ask: Ask) -> Answer | bytes | None:
        if ask.path == "/generate":
            await asyncio.Event().wait()
        if ask.path == "/workers":
            return Answer.of({"workers": [{"url": worker.url}]})
        return Answer(status=404)

    async def at_worker(ask: Ask) -> Answer:
        return Answer()

    async with Loopback(at_worker) as worker, Loopback(hang) as router:
        async with SlimePolicy(slime_args(router.port), host=SlimeHost()) as policy:
            task = asyncio.create_task(policy.generate((1, 2), SAMPLING, tag=TAG))
            await router.arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        (abort,) = worker.asked("/abort_request")
        assert abort.json == {"rid": router.asks[0].json["rid"]}


class State:
    """Slime's one state of generation, whatever arguments it is asked with."""

    aborted = False

    def __init__(self, args: Any) -> None:
        self.args = args


async def test_what_slime_has_loaded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SlimeHost.current(slime_args()) == SlimeHost()
    http, rollout = ModuleType("http_utils"), ModuleType("sglang_rollout")
    client, post = httpx.AsyncClient(), SpreadPost()
    http.__dict__.update(_http_client=client, post=post)
    rollout.__dict__.update(GenerateState=State)
    monkeypatch.setitem(sys.modules, "slime.utils.http_utils", http)
    monkeypatch.setitem(sys.modules, "slime.rollout.sglang_rollout", rollout)
    host = SlimeHost.current(slime_args())
    assert (host.client, host.post, host.is_aborted()) == (client, None, False)
    monkeypatch.setattr(State, "aborted", True)
    assert host.is_aborted()
    assert SlimeHost.current(slime_args(use_distributed_post=True)).post is post
    await client.aclose()


def test_importing_it_loads_no_host_and_nothing_heavy() -> None:
    heavy = ("slime", "torch", "transformers", "ray", "numpy")
    code = f"import sys, focus.policies.slime; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
