"""A served critic over real sockets: what it asks, and every way a reply can be wrong."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.policies.loopback import Answer, Ask, Cut, Loopback

from focus import Critic
from focus.critic.wire import context_digest
from focus.errors import ConfigError, CorruptReply, CriticError, FatalError, TransientError
from focus.policies.retry import RetryPolicy
from focus.records.codec import decode_context
from focus.records.records import CriticContext
from focus.records.strict_json import Fields

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(attempts=1, corrupt_attempts=1)
PATIENT = RetryPolicy(attempts=3, corrupt_attempts=3, base_s=0.0)
VERSION = "critic-000007"


def context(text: str) -> CriticContext:
    return CriticContext(renderer="token_chunk/1", text=text, ids=tuple(text.encode()))


CONTEXTS = [context(text) for text in ("a", "bb", "ccc")]
VALUES = [0.01, 0.02, 0.03]


def value(ids: Any) -> float:
    return len(ids) / 100


def focus_reply(ask: Ask) -> dict[str, Any]:
    asked = [decode_context(Fields(c, where="context")) for c in ask.json["contexts"]]
    return {
        "version": ask.json["version"],
        "values": [value(c.ids) for c in asked],
        "contexts": [context_digest(c) for c in asked],
    }


def sglang_reply(ask: Ask) -> list[Any]:
    return [
        {"embedding": [value(ids)], "meta_info": {"weight_version": VERSION}}
        for ids in ask.json["input_ids"]
    ]


def vllm_reply(ask: Ask, field: str) -> dict[str, Any]:
    items = [{"index": i, field: [value(ids)]} for i, ids in enumerate(ask.json["input"])]
    return {"model": ask.json["model"], "data": items}


PROTOCOLS: dict[str, tuple[str, Callable[[Ask], Any]]] = {
    "focus": ("/score", focus_reply),
    "sglang": ("/classify", sglang_reply),
    "vllm": ("/classify", lambda ask: vllm_reply(ask, "probs")),
    "vllm-pooling": ("/pooling", lambda ask: vllm_reply(ask, "data")),
}
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def serving(protocol: str, change: Callable[[Any], Any] = lambda reply: reply) -> Loopback:
    """A server that speaks `protocol`; `change` spoils its scores."""

    async def answer(ask: Ask) -> Answer:
        if ask.path == "/sessions/close":
            return Answer.of({})
        return Answer.of(change(PROTOCOLS[protocol][1](ask)))

    return Loopback(answer)


async def scored(
    server: Loopback, protocol: Any, *, retry: RetryPolicy = ONCE, **options: Any
) -> list[float]:
    async with server:
        critic = Critic.served(
            server.url, version=VERSION, protocol=protocol, retry=retry, **options
        )
        try:
            return await critic.score(CONTEXTS)
        finally:
            await critic.aclose()


@each_protocol
async def test_values_come_back_in_order_and_ids_go_out_unchanged(protocol: str) -> None:
    server = serving(protocol)
    assert await scored(server, protocol) == VALUES
    (ask,) = server.asked(PROTOCOLS[protocol][0])
    sent = ask.json.get("input") or ask.json.get("input_ids") or ask.json["contexts"]
    ids = [item["ids"] if isinstance(item, dict) else item for item in sent]
    assert ids == [list(c.ids or ()) for c in CONTEXTS]


@each_protocol
async def test_equal_contexts_are_sent_once_and_batches_kept_small(protocol: str) -> None:
    async with serving(protocol) as server:
        critic = Critic.served(server.url, version=VERSION, protocol=protocol, batch=2)  # type: ignore[arg-type]
        assert await critic.score([*CONTEXTS, *CONTEXTS]) == VALUES * 2
        await critic.aclose()
        sizes = [
            len(a.json.get("input") or a.json.get("input_ids") or a.json["contexts"])
            for a in server.asked(PROTOCOLS[protocol][0])
        ]
    assert sizes == [2, 1]


def replaced(reply: Any, new: Callable[[list[Any]], list[Any]]) -> Any:
    """The reply with its list of values changed by `new`, whatever the protocol calls them."""
    if isinstance(reply, list):
        values = new([item["embedding"][0] for item in reply])
        return [{**reply[0], "embedding": [v] if not isinstance(v, list) else v} for v in values]
    if "values" in reply:
        return {**reply, "values": new(reply["values"])}
    field = "probs" if "probs" in reply["data"][0] else "data"
    values = new([item[field][0] for item in reply["data"]])
    data = [{"index": i, field: v if isinstance(v, list) else [v]} for i, v in enumerate(values)]
    return {**reply, "data": data}


WRONG_VALUES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "NaN": lambda values: [math.nan, *values[1:]],
    "infinite": lambda values: [*values[:-1], math.inf],
    "above the range": lambda values: [1.5, *values[1:]],
    "below the range": lambda values: [-0.5, *values[1:]],
    "one too few": lambda values: values[1:],
    "one too many": lambda values: [*values, 0.5],
    "none at all": lambda values: [],
    "null": lambda values: [None, *values[1:]],
    "text": lambda values: ["high", *values[1:]],
    "a flag": lambda values: [True, *values[1:]],
    "a list for a number": lambda values: [[0.1, 0.2], *values[1:]],
}


@each_protocol
@pytest.mark.parametrize("kind", WRONG_VALUES)
async def test_a_wrong_value_is_an_error_in_every_protocol(protocol: str, kind: str) -> None:
    server = serving(protocol, lambda reply: replaced(reply, WRONG_VALUES[kind]))
    with pytest.raises(CriticError, match=VERSION):
        await scored(server, protocol)


@each_protocol
@pytest.mark.parametrize("reply", [[], {}, "", 0.5, None, [0.1, 0.2, 0.3], {"data": 3}])
async def test_another_shape_is_a_corrupt_reply(protocol: str, reply: Any) -> None:
    with pytest.raises(CriticError) as caught:
        await scored(serving(protocol, lambda _: reply), protocol)
    assert isinstance(caught.value.__cause__, CorruptReply)


def other_version(reply: Any) -> Any:
    if isinstance(reply, list):
        return [{**item, "meta_info": {"weight_version": "critic-000008"}} for item in reply]
    return {**reply, "version" if "version" in reply else "model": "critic-000008"}


@each_protocol
async def test_a_version_that_changes_within_a_tree_is_fatal(protocol: str) -> None:
    changed = False

    def change(reply: Any) -> Any:
        return other_version(reply) if changed else reply

    async with serving(protocol, change) as server:
        critic = Critic.served(server.url, version=VERSION, protocol=protocol, retry=PATIENT)  # type: ignore[arg-type]
        assert await critic.score(CONTEXTS) == VALUES
        changed = True
        with pytest.raises(FatalError, match=r"'critic-000008'.*pinned to 'critic-000007'"):
            await critic.score([context("new")])
        await critic.aclose()


async def test_one_sglang_reply_of_two_versions_is_corrupt() -> None:
    def change(reply: Any) -> Any:
        return [*reply[:2], {**reply[2], "meta_info": {"weight_version": "critic-000008"}}]

    with pytest.raises(CriticError, match="weight versions"):
        await scored(serving("sglang", change), "sglang")


@pytest.mark.parametrize("protocol", ["vllm", "vllm-pooling"])
async def test_items_out_of_order_are_put_in_order_by_their_index(protocol: str) -> None:
    server = serving(protocol, lambda reply: {**reply, "data": reply["data"][::-1]})
    assert await scored(server, protocol) == VALUES


@pytest.mark.parametrize("protocol", ["vllm", "vllm-pooling"])
@pytest.mark.parametrize("indexes", [(0, 0, 1), (0, 1, 3), (-1, 0, 1), (0, 1, True), (0, 1, "2")])
async def test_indexes_that_are_no_order_are_corrupt(protocol: str, indexes: Any) -> None:
    def change(reply: Any) -> Any:
        data = [{**d, "index": i} for d, i in zip(reply["data"], indexes, strict=True)]
        return {**reply, "data": data}

    with pytest.raises(CriticError, match="index"):
        await scored(serving(protocol, change), protocol)


async def test_values_of_other_contexts_or_in_another_order_are_refused() -> None:
    def swap(reply: Any) -> Any:
        return {**reply, "values": reply["values"][::-1], "contexts": reply["contexts"][::-1]}

    with pytest.raises(CriticError, match="another order"):
        await scored(serving("focus", swap), "focus")


@each_protocol
async def test_a_fault_that_passes_is_repeated(protocol: str) -> None:
    faults: list[Answer | bytes | None] = [None, Answer.of({}, status=503)]

    async def answer(ask: Ask) -> Answer | bytes | None:
        if ask.path == "/sessions/close":
            return Answer.of({})
        return faults.pop() if faults else Answer.of(PROTOCOLS[protocol][1](ask))

    assert await scored(Loopback(answer), protocol, retry=PATIENT) == VALUES


@each_protocol
async def test_a_silent_server_ends_at_the_deadline(protocol: str) -> None:
    async def answer(ask: Ask) -> Answer:
        await asyncio.Event().wait()
        return Answer()

    with pytest.raises(CriticError, match=r"within 0\.05 s") as caught:
        await scored(Loopback(answer), protocol, deadline_s=0.05)
    assert isinstance(caught.value.__cause__, TransientError)


@pytest.mark.parametrize(
    ("status", "kind"), [(404, FatalError), (401, FatalError), (422, CriticError)]
)
async def test_a_status_that_stays_is_not_repeated(status: int, kind: type[Exception]) -> None:
    server = serving("focus")
    asks = 0

    async def answer(ask: Ask) -> Answer:
        nonlocal asks
        asks += ask.path == "/score"
        return Answer.of({"error": "no"}, status=status)

    server = Loopback(answer)
    with pytest.raises(kind):
        await scored(server, "focus", retry=PATIENT)
    assert asks == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"version": NaN}',
        b"not json",
        b"x" * 100_000,
        json.dumps([0.1] * 100_000).encode(),
    ],
    ids=["NaN", "no JSON", "long", "many values"],
)
async def test_a_body_that_is_none_is_corrupt_and_bounded(body: bytes) -> None:
    async def answer(ask: Ask) -> Answer:
        return Answer(body)

    with pytest.raises(CriticError) as caught:
        await scored(Loopback(answer), "focus")
    assert isinstance(caught.value.__cause__, CorruptReply)


async def test_a_reply_that_is_cut_off_is_transient() -> None:
    async def answer(ask: Ask) -> Cut:
        return Cut(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{")

    with pytest.raises(CriticError) as caught:
        await scored(Loopback(answer), "focus")
    assert isinstance(caught.value.__cause__, TransientError)


@pytest.mark.parametrize("protocol", ["sglang", "vllm", "vllm-pooling"])
async def test_logits_become_values_where_the_server_does_not_squash(protocol: str) -> None:
    def change(reply: Any) -> Any:
        return replaced(reply, lambda values: [0.0, 1000.0, -1000.0])

    server = serving(protocol, change)
    assert await scored(server, protocol, activation="sigmoid") == [0.5, 1.0, 0.0]


async def test_a_session_is_one_per_critic_and_given_back() -> None:
    async with serving("focus") as server:
        critic = Critic.served(server.url, version=VERSION)
        await critic.score(CONTEXTS[:1])
        await critic.score(CONTEXTS[1:])
        await critic.aclose()
        sessions = {ask.json["session"] for ask in server.asks}
        assert [ask.path for ask in server.asks] == ["/score", "/score", "/sessions/close"]
    assert len(sessions) == 1


async def test_contexts_with_and_without_ids_do_not_mix() -> None:
    bare = CriticContext(renderer="token_chunk/1", text="a")
    async with serving("vllm") as server:
        critic = Critic.served(server.url, version=VERSION, protocol="vllm", retry=ONCE)
        with pytest.raises(CriticError, match="with and without token ids"):
            await critic.score([bare, CONTEXTS[0]])
        await critic.aclose()


async def test_text_critics_are_sent_text() -> None:
    async with serving("vllm") as server:
        critic = Critic.served(server.url, version=VERSION, protocol="vllm")
        await critic.score([CriticContext(renderer="token_chunk/1", text="abc")])
        await critic.aclose()
        assert server.asks[0].json["input"] == ["abc"]


@pytest.mark.parametrize(
    "options",
    [
        {"version": ""},
        {"protocol": "grpc"},
        {"activation": "sigmoid"},
        {"protocol": "vllm", "activation": "tanh"},
        {"deadline_s": 0.0},
        {"value_range": (1.0, 0.0)},
        {"url": "127.0.0.1:8000"},
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(options: dict[str, Any]) -> None:
    settings = {"url": "http://127.0.0.1:9", "version": "c", **options}
    with pytest.raises(ConfigError):
        Critic.served(settings.pop("url"), **settings)
