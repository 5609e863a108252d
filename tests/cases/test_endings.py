"""Family (d): what ends a reply or an episode is told apart; weights never change inside a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus import (
    AdmissionPool,
    Execution,
    ExecutionServices,
    FinishReason,
    Generation,
    RetryPolicy,
    Sampling,
    Search,
)
from focus.errors import Aborted, CollectionFailed, FatalError, ProblemError
from focus.policies.sglang_wire import Asked, read_reply
from focus.tasks import MathEnv
from focus.testing.envs import WalkEnv
from focus.testing.policies import ScriptedPolicy

from .servers import Engine, collect, grow, sampled, written

pytestmark = pytest.mark.anyio


class Bounded(ScriptedPolicy):
    """Has a context of `limit` and a prompt of `prompt` tokens; notes what it is asked for."""

    def __init__(self, text: str, *, limit: int, prompt: int) -> None:
        super().__init__(lambda _, so_far, rng: text[len(so_far) :], context_limit=limit)
        self._prompt = prompt
        self.asked: list[tuple[int, int]] = []

    def render(self, messages: Any, tools: Any = ()) -> tuple[int, ...]:
        return tuple(b"assistant: ".rjust(self._prompt, b"x"))

    async def generate(self, prefix: Any, sampling: Sampling, *, tag: Any = None) -> Generation:
        assert sampling.max_tokens is not None
        self.asked.append((len(prefix), sampling.max_tokens))
        return await super().generate(prefix, sampling, tag=tag)


async def test_b28_the_coming_reply_counts_towards_the_context() -> None:
    """8,192 with 8,000 taken leaves 192 of a chunk of 256; at 8,192 nothing is sent."""
    policy = Bounded("x" * 999, limit=8192, prompt=8000)
    env = WalkEnv()
    found = await collect(policy, env, segment=256, allowance=4096)
    assert policy.asked == [(8000, 192)]
    (leaf,) = found.tree.terminals()
    assert found.tree[leaf].is_truncated
    assert env.finishes == ["context"]
    assert found.failures == ()


async def test_b28_an_answer_in_the_last_tokens_of_the_context_keeps_its_reward() -> None:
    text = "x" * 180 + r"\boxed{4} so"
    policy = Bounded(text, limit=8192, prompt=8000)
    found = await collect(policy, MathEnv("4", kind="exact"), segment=256, allowance=4096)
    assert found.root_outcomes == [1.0]
    assert found.tree[1].is_truncated


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(30, 120),
    prompt=st.integers(11, 150),
    chunk=st.integers(1, 40),
    length=st.integers(0, 130),
)
def test_b28_b29_every_request_fits_and_asks_for_at_least_one_token(
    limit: int, prompt: int, chunk: int, length: int
) -> None:
    """A prompt that fills the context is refused unsent; any other path ends truncated or done."""
    policy = Bounded("x" * length, limit=limit, prompt=prompt)
    try:
        found = asyncio.run(collect(policy, WalkEnv(), segment=chunk, allowance=200))
    except ProblemError:
        assert prompt >= limit
        assert policy.asked == []
        return
    assert all(most >= 1 and taken + most <= limit for taken, most in policy.asked)
    (leaf,) = found.tree.terminals()
    assert found.tree[leaf].is_truncated == (prompt + length + 1 > limit)
    assert len(found.actor) == len(policy.asked)


async def test_b29_a_prompt_longer_than_the_context_is_named_and_never_sent() -> None:
    policy = Bounded("x", limit=256, prompt=273)
    with pytest.raises(ProblemError, match=r"'p-17'.*273 tokens.*256"):
        await collect(policy, WalkEnv())
    assert policy.asked == []


def aborted(asked: Mapping[str, Any], ids: int = 40) -> dict[str, Any]:
    return sampled(asked, [65] * ids, finish="abort")


async def test_b31_an_abort_with_status_200_is_no_completion() -> None:
    """Tried again within the budget, then raised; the environment never sees its ids."""
    env, engine = WalkEnv(), Engine(lambda asked, number: aborted(asked))
    with pytest.raises(CollectionFailed) as caught:
        await grow(engine, env, segment=64)
    assert isinstance(caught.value.__cause__, Aborted)
    assert len(engine.payloads) == RetryPolicy().attempts
    assert env.steps == 0
    assert env.finishes == []


async def test_b31_a_later_try_that_completes_is_the_only_one_that_counts() -> None:
    def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        return aborted(asked) if number < 2 else written("+-+")(asked, number)

    found = await grow(Engine(write), WalkEnv(), segment=64)
    (record,) = found.actor
    assert bytes(record.response[:-1]) == b"+-+"
    assert (found.ledger.requests_failed, found.ledger.requests_accepted) == (2, 1)


KEYS = ("output_token_logprobs", "prompt_tokens", "completion_tokens", "weight_version", "id")


@pytest.mark.parametrize("missing", range(2 ** len(KEYS)))
def test_b32_an_abort_is_an_abort_however_little_comes_with_it(missing: int) -> None:
    """Every subset of the keys that abort replies lack: never a KeyError."""
    body = aborted({"rid": "r", "input_ids": [1]})
    for bit, name in enumerate(KEYS):
        if missing >> bit & 1:
            del body["meta_info"][name]
    with pytest.raises(Aborted) as caught:
        read_reply(body, Asked("r", "the name", 1))
    assert caught.value.where["request_id"] == "the name"


async def test_b32_the_reply_of_the_case_gives_its_permit_back() -> None:
    services = ExecutionServices(AdmissionPool(1))
    execution = Execution(services=services, retry=RetryPolicy(attempts=2, base_s=0.0))

    def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        return {"text": "", "meta_info": {"id": "r", "finish_reason": {"type": "abort"}}}

    with pytest.raises(CollectionFailed) as caught:
        await grow(Engine(write), WalkEnv(), execution=execution)
    assert isinstance(caught.value.__cause__, Aborted)
    assert "request=" in str(caught.value)
    assert services.pool.statistics.in_use == 0


@pytest.mark.parametrize("flip", range(8))
async def test_b34_weights_that_change_at_any_request_end_the_tree(flip: int) -> None:
    """The version is pinned at dispatch; a reply of another one is never exported as the old."""

    def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        body = written("+-+-+-+-+-+")(asked, number)
        body["meta_info"]["weight_version"] = "8" if number >= flip else "7"
        return body

    engine = Engine(write, version="7")
    with pytest.raises(CollectionFailed) as caught:
        await grow(engine, WalkEnv(), segment=3, search=Search.flat(3, concurrency=1))
    assert isinstance(caught.value.__cause__, FatalError)
    assert "'7'" in str(caught.value)
    assert "'8'" in str(caught.value)
    assert len(engine.payloads) == flip + 1


async def test_b34_with_equal_versions_every_record_names_it() -> None:
    def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        body = written("+-+-+")(asked, number)
        body["meta_info"]["weight_version"] = 7
        return body

    found = await grow(Engine(write, version="7"), WalkEnv())
    assert {node.incoming.provenance.policy_version for node in found.tree.edges()} == {"7"}
    assert {record.source.policy_version for record in found.actor} == {"7"}


class AllAtOnce(ScriptedPolicy):
    """Holds requests back until `size` are in flight, then aborts them together."""

    def __init__(self, size: int) -> None:
        super().__init__(lambda *_: "")
        self._size = size
        self._waiting: list[asyncio.Future[None]] = []

    async def generate(self, prefix: Any, sampling: Sampling, *, tag: Any = None) -> Generation:
        self.requests += 1
        self._waiting.append(asyncio.get_running_loop().create_future())
        mine = self._waiting[-1]
        if len(self._waiting) == self._size:
            for waiter in self._waiting:
                waiter.set_result(None)
            self._waiting = []
        await mine
        return Generation((65,), (-0.1,), FinishReason.ABORT, self.version)


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_b35_sixteen_aborts_at_once_are_one_error_and_no_storm(attempts: int) -> None:
    """One error with the count; at most budget × 16 requests; all permits back."""
    policy = AllAtOnce(16)
    services = ExecutionServices(AdmissionPool(16))
    retry = RetryPolicy(attempts=attempts, base_s=0.0)
    with pytest.raises(CollectionFailed) as caught:
        await collect(
            policy,
            WalkEnv(),
            search=Search.flat(16, concurrency=16),
            execution=Execution(services=services, retry=retry),
        )
    assert isinstance(caught.value.__cause__, Aborted)
    assert "16 expansions" in str(caught.value)
    assert f"{16 * attempts} Aborted" in str(caught.value)
    assert policy.requests == 16 * attempts
    assert services.pool.statistics.in_use == 0
