"""Replies of an SGLang server: exact ids and log-probs, or a typed error that says why not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import Sampling
from focus.errors import (
    Aborted,
    CorruptReply,
    FatalError,
    Refused,
    RequestError,
    TransientError,
)
from focus.policies.base import RequestTag
from focus.policies.sglang import SGLangPolicy
from focus.policies.sglang_wire import Asked, read_reply
from focus.tokens import FinishReason, Generation

from .loopback import Answer, ByteTokenizer, FakeEngine, Loopback

pytestmark = pytest.mark.anyio

TAG = RequestTag(request="run/0/0/ab/3/1/1", tree="run/0/0/ab")


async def ask(engine: Any, **options: Any) -> Generation:
    """One reply to the prompt (1, 2, 3)."""
    async with (
        Loopback(engine) as loopback,
        SGLangPolicy(loopback.url, tokenizer=ByteTokenizer(), **options) as policy,
    ):
        return await policy.generate((1, 2, 3), Sampling(max_tokens=8), tag=TAG)


def changed(**meta: Any) -> FakeEngine:
    """An engine whose replies carry other values in their meta_info; `...` removes one."""

    def change(number: int, body: dict[str, Any]) -> dict[str, Any]:
        for name, value in meta.items():
            if value is ...:
                body["meta_info"].pop(name, None)
            else:
                body["meta_info"][name] = value
        return body

    return FakeEngine(change=change)


async def test_a_reply_is_read_as_it_is() -> None:
    pairs = [[-0.5, 5, None], [-1, 6, "six"], [0, 256, None]]
    finish = {"type": "stop", "matched": 256}
    reply = await ask(
        changed(
            output_token_logprobs=pairs,
            completion_tokens=3,
            finish_reason=finish,
            weight_version=7,
            cached_tokens=2,
        )
    )
    assert reply == Generation(
        ids=(5, 6, 256),
        log_probs=(-0.5, -1.0, 0.0),
        finish=FinishReason.STOP,
        version="7",
        request_id=TAG.request,
        cached_tokens=2,
    )
    assert all(type(value) is float for value in reply.log_probs)


async def test_what_a_server_leaves_out_is_unknown_and_not_zero() -> None:
    gone = {"cached_tokens": ..., "completion_tokens": ..., "prompt_tokens": ..., "id": ...}
    reply = await ask(changed(**gone))
    assert reply.cached_tokens is None
    assert (await ask(changed(weight_version=...), version="mine")).version == "mine"


CORRUPT = {
    "no log-probs": {"output_token_logprobs": ...},
    "null list": {"output_token_logprobs": None},
    "object for list": {"output_token_logprobs": {}},
    "number for pair": {"output_token_logprobs": [-0.5]},
    "single value": {"output_token_logprobs": [[-0.5]]},
    "null log-prob": {"output_token_logprobs": [[-0.1, 5], [None, 42], [-0.2, 9]]},
    "text log-prob": {"output_token_logprobs": [["-0.1", 5]]},
    "true log-prob": {"output_token_logprobs": [[True, 5]]},
    "huge log-prob": {"output_token_logprobs": [[-(10**400), 5]]},
    "float id": {"output_token_logprobs": [[-0.1, 5.0]]},
    "true id": {"output_token_logprobs": [[-0.1, True]]},
    "null id": {"output_token_logprobs": [[-0.1, None]]},
    "count": {"completion_tokens": 7},
    "count type": {"completion_tokens": "2"},
    "other prompt": {"prompt_tokens": 4},
    "other request": {"id": "run/0/0/ab/3/1/2~0000000000000001"},
    "numbered request": {"id": 7},
    "no finish": {"finish_reason": ...},
    "null finish": {"finish_reason": None},
    "text finish": {"finish_reason": "stop"},
    "unknown finish": {"finish_reason": {"type": "content_filter"}},
    "finish of lists": {"finish_reason": {"type": []}},
    "stop elsewhere": {"finish_reason": {"type": "stop", "matched": 9}},
    "stop at text": {"finish_reason": {"type": "stop", "matched": "NaN happened"}},
    "no version": {"weight_version": ...},
    "null version": {"weight_version": None},
    "list version": {"weight_version": [1]},
    "endless version": {"weight_version": "x" * 1000},
    "cached beyond": {"cached_tokens": 4},
    "cached below": {"cached_tokens": -1},
    "cached type": {"cached_tokens": 1.5},
}


@pytest.mark.parametrize("meta", CORRUPT.values(), ids=list(CORRUPT))
async def test_a_reply_that_breaks_its_contract_is_refused_whole(meta: dict[str, Any]) -> None:
    with pytest.raises(CorruptReply) as caught:
        await ask(changed(**meta))
    assert len(str(caught.value)) < 1000


async def test_a_null_log_prob_is_named_and_never_filled_in() -> None:
    """B20."""
    with pytest.raises(CorruptReply, match="log-prob None at position 1"):
        await ask(changed(**CORRUPT["null log-prob"]))


ODD = {
    "list": ([], CorruptReply),
    "text": ("fine", CorruptReply),
    "empty": ({}, CorruptReply),
    "chat": ({"choices": None}, CorruptReply),
    "meta list": ({"meta_info": []}, CorruptReply),
    "error": ({"error": {"message": "no"}}, CorruptReply),
    "error text": ({"error": "no"}, CorruptReply),
    "error 504": ({"error": {"code": 504, "message": "late"}}, TransientError),
    "error 400": ({"object": "error", "code": 400, "message": "no"}, Refused),
    "error 401": ({"error": {"code": 401}}, FatalError),
    "error 7": ({"error": {"code": 7}}, CorruptReply),
}


@pytest.mark.parametrize(("body", "kind"), ODD.values(), ids=list(ODD))
async def test_another_body_with_status_200_has_its_class(body: Any, kind: type) -> None:
    """B37: an error may come inside a 200."""
    with pytest.raises(RequestError) as caught:
        await ask(FakeEngine(change=lambda number, reply: Answer.of(body)))
    assert type(caught.value) is kind


ABORTS: list[dict[str, Any]] = [
    {"id": "r", "finish_reason": {"type": "abort"}},
    {"finish_reason": {"type": "abort", "message": "gone"}, "output_token_logprobs": [[-0.1, 5]]},
]


@pytest.mark.parametrize("meta", ABORTS)
async def test_an_abort_is_an_abort_however_little_it_carries(meta: dict[str, Any]) -> None:
    """B31, B32."""
    body = {"text": "", "meta_info": meta}
    with pytest.raises(Aborted) as caught:
        await ask(FakeEngine(change=lambda number, reply: body))
    assert TAG.request in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
names = (
    "id",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "weight_version",
    "output_token_logprobs",
)
metas = st.fixed_dictionaries({}, optional={name: json_values for name in names})


@given(st.one_of(json_values, st.fixed_dictionaries({"meta_info": metas | json_values})))
def test_any_json_is_a_sound_reply_or_a_request_error(body: Any) -> None:
    try:
        reply = read_reply(body, Asked("r", "r", 3))
    except RequestError:
        return
    assert len(reply.ids) == len(reply.log_probs)
    assert all(type(token) is int for token in reply.ids)
    assert all(math.isfinite(value) for value in reply.log_probs)


@given(
    place=st.integers(0, 2),
    value=json_values.filter(lambda v: type(v) not in (int, float)),
    field=st.integers(0, 1),
)
def test_one_spoilt_entry_spoils_the_reply(place: int, value: Any, field: int) -> None:
    pairs: list[list[Any]] = [[-0.1, 5, None], [-0.2, 6, None], [-0.3, 7, None]]
    pairs[place][field] = value
    meta = {"finish_reason": {"type": "length"}, "output_token_logprobs": pairs}
    with pytest.raises(CorruptReply):
        read_reply({"meta_info": meta | {"weight_version": "w"}}, Asked("r", "r", 3))
