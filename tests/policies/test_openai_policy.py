"""The vLLM client: exact ids and log-probs over both endpoints, or a typed error."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Execution,
    OpenAIPolicy,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
)
from focus.errors import (
    Aborted,
    CollectionFailed,
    ConfigError,
    CorruptReply,
    FatalError,
    Refused,
    RequestError,
    TransientError,
)
from focus.execution import RequestCounts
from focus.policies.base import Policy, Refreshable, RequestTag
from focus.policies.convention import LogProbConvention
from focus.policies.vllm_wire import COMPLETIONS, GENERATE, Asked, Endpoint
from focus.records.codec import encode_actor
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.loopback import Answer, Ask, ByteTokenizer, Loopback
from focus.testing.policies import END, ScriptedPolicy
from focus.testing.vllm import PagedCache, VLLMStandIn
from focus.tokens import FinishReason, Generation

pytestmark = pytest.mark.anyio

TAG = RequestTag(request="run/0/0/ab/3/1/1", tree="run/0/0/ab")
SAMPLING = Sampling(temperature=1.0, max_tokens=8)
PATIENT = RetryPolicy(base_s=0.0)
PATHS = {False: COMPLETIONS.path, True: GENERATE.path}
both = pytest.mark.parametrize("names_weights", [False, True], ids=["completions", "generate"])


def policy_at(url: str, **options: Any) -> OpenAIPolicy:
    return OpenAIPolicy(url, tokenizer=ByteTokenizer(), **options)


def says(text: str) -> ScriptedPolicy:
    return ScriptedPolicy(lambda prompt, so_far, rng: text)


async def ask(
    stand_in: Any,
    sampling: Sampling = SAMPLING,
    *,
    prefix: tuple[int, ...] = (1, 2, 3),
    **options: Any,
) -> Generation:
    async with Loopback(stand_in) as loopback, policy_at(loopback.url, **options) as policy:
        return await policy.generate(prefix, sampling, tag=TAG)


# --- what is sent -----------------------------------------------------------------------

NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logprobs": 0,
}
FULL = SAMPLING.merged(Sampling(temperature=0.7, top_p=0.9, top_k=5, stop=(7, 9), seed=11))
FULL_LAW = NEUTRAL | {
    "max_tokens": 8,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 5,
    "stop_token_ids": [7, 9],
    "seed": 11,
}
BARE_LAW = NEUTRAL | {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 0}


@both
async def test_a_request_asks_for_exactly_the_law_and_for_ids(names_weights: bool) -> None:
    """The model's generation config must not change the law; prompt log-probs would switch
    the prefix cache off."""
    async with (
        Loopback(VLLMStandIn(scale_out=True)) as loopback,
        policy_at(loopback.url, names_weights=names_weights, served_model="stand-in") as policy,
    ):
        await policy.generate((1, 2, 3), FULL, tag=TAG)
        await policy.generate((1, 2, 3), Sampling(max_tokens=1))
    asks = loopback.asked(PATHS[names_weights])
    full, bare = (ask.json for ask in asks)
    assert full.pop("model") == bare.pop("model") == "stand-in"
    for body, law, sent in ((full, FULL_LAW, asks[0]), (bare, BARE_LAW, asks[1])):
        rid = body.pop("request_id")
        assert sent.headers["x-request-id"] == rid
        expected: dict[str, Any] = {"return_token_ids": True}
        if names_weights:
            law = law | {"detokenize": False}
            assert body == expected | {"token_ids": [1, 2, 3], "sampling_params": law}
        else:
            assert body == expected | {"prompt": [1, 2, 3]} | law
    assert [sent.headers.get("x-session-id") for sent in asks] == [TAG.tree, None]


@pytest.mark.parametrize("name", ["läuft\r\n", "x" * 300])
async def test_names_that_no_header_carries_are_digests_and_stay_distinct(name: str) -> None:
    tag = RequestTag(name, name)
    async with Loopback(VLLMStandIn()) as loopback, policy_at(loopback.url) as policy:
        replies = [await policy.generate((1,), SAMPLING, tag=tag) for _ in range(2)]
    sent = [ask.headers for ask in loopback.asks]
    assert len({headers["x-request-id"] for headers in sent}) == 2
    assert len({headers["x-session-id"] for headers in sent}) == 1
    assert [reply.request_id for reply in replies] == [name, name]


async def test_nothing_is_sent_that_does_not_fit() -> None:
    """vLLM cuts what does not fit without a word, so it must not come to that."""
    async with Loopback(VLLMStandIn(context=10)) as loopback:
        async with policy_at(loopback.url, context_limit=10) as policy:
            for length, wanted in ((8, 3), (10, 1), (10, None), (27, 4)):
                with pytest.raises(Refused, match="do not fit into the context of 10"):
                    await policy.generate((1,) * length, Sampling(max_tokens=wanted))
            for prefix in ((), (257,), (-1,)):
                with pytest.raises(Refused):
                    await policy.generate(prefix, SAMPLING)
        assert not loopback.asks


async def test_a_reply_that_was_cut_without_a_word_is_refused() -> None:
    """A client that does not know the context finds out from the reply's length."""
    async with Loopback(VLLMStandIn(says("a long reply"), context=8)) as loopback:
        error, counts = await execute(loopback.url)
    assert type(error) is CorruptReply
    assert "'length' after 5 of 8 ids" in str(error)
    assert counts.accepted == 0


# --- what comes back --------------------------------------------------------------------


@both
async def test_a_reply_is_read_as_it_is(names_weights: bool) -> None:
    stand_in = VLLMStandIn(says("hi"), scale_out=True, page=2)
    reply = await ask(stand_in, names_weights=names_weights)
    scripted = await says("hi").generate((1, 2, 3), SAMPLING, tag=TAG)
    assert reply == Generation(
        ids=(ord("h"), ord("i"), END),
        log_probs=scripted.log_probs,
        finish=FinishReason.STOP,
        version="default" if names_weights else "stand-in",
        request_id=TAG.request,
        cached_tokens=0,
    )


@both
async def test_a_stop_id_ends_the_reply_and_is_its_last_id(names_weights: bool) -> None:
    stop = Sampling(max_tokens=8, stop=(ord("i"),))
    reply = await ask(
        VLLMStandIn(says("hither"), scale_out=True), stop, names_weights=names_weights
    )
    assert (reply.ids, reply.finish) == ((ord("h"), ord("i")), FinishReason.STOP)


async def test_cached_tokens_are_unknown_where_the_server_does_not_tell() -> None:
    assert (await ask(VLLMStandIn(tells_cached=False))).cached_tokens is None


Change = Callable[[dict[str, Any]], Any]


def choice(**fields: Any) -> Change:
    """Other values in the only choice; `...` removes one."""

    def change(body: dict[str, Any]) -> Any:
        _put(body["choices"][0], fields)
        return body

    return change


def whole(**fields: Any) -> Change:
    def change(body: dict[str, Any]) -> Any:
        _put(body, fields)
        return body

    return change


def _put(target: dict[str, Any], fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        if value is ...:
            target.pop(name)
        else:
            target[name] = value


def values(*told: Any) -> Change:
    """Other log-probs beside the same ids, on either endpoint."""

    def change(body: dict[str, Any]) -> Any:
        [one] = body["choices"]
        content = [
            {"token_id": token, "logprob": value}
            for token, value in itertools.zip_longest(one["token_ids"], told)
        ]
        one["logprobs"] = {"token_logprobs": list(told), "content": content[: len(told)]}
        return body

    return change


def usage(**fields: Any) -> Change:
    return lambda body: {**body, "usage": {**body["usage"], **fields}}


CORRUPT: dict[str, Change] = {
    "no ids": choice(token_ids=...),
    "null ids": choice(token_ids=None),
    "text id": choice(token_ids=["4", END]),
    "true id": choice(token_ids=[True, END]),
    "an id less": choice(token_ids=[END]),
    "no log-probs": choice(logprobs=...),
    "null log-probs": choice(logprobs=None),
    "list of log-probs": choice(logprobs=[-0.1, -0.2]),
    "null log-prob": values(-0.1, None),
    "text log-prob": values(-0.1, "-0.2"),
    "true log-prob": values(-0.1, True),
    "huge log-prob": values(-0.1, -(10**400)),
    "minus infinity as vLLM writes it": values(-0.1, -9999.0),
    "a log-prob more": values(-0.1, -0.2, -0.3),
    "a log-prob less": values(-0.1),
    "completion count": usage(completion_tokens=7),
    "prompt count": usage(prompt_tokens=4),
    "count type": usage(completion_tokens="2"),
    "cached beyond": usage(prompt_tokens_details={"cached_tokens": 4}),
    "cached below": usage(prompt_tokens_details={"cached_tokens": -1}),
    "no finish": choice(finish_reason=...),
    "finish unknown": choice(finish_reason="repetition"),
    "finish of lists": choice(finish_reason=["stop"]),
    "stop at text": choice(stop_reason="4"),
    "stop elsewhere": choice(stop_reason=9),
    "other prompt": lambda body: whole(prompt_token_ids=[1, 2, 4])(
        choice(prompt_token_ids=[1, 2, 4])(body)
    ),
    "other request": whole(id="cmpl-r", request_id="generate-tokens-r"),
    "numbered request": whole(id=7, request_id=7),
    "no choice": whole(choices=[]),
    "two choices": lambda body: {**body, "choices": body["choices"] * 2},
    "choices of text": whole(choices=["x"]),
    "null choices": whole(choices=None),
    "endless version": lambda body: whole(model="x" * 1000)(
        choice(weight_versions=[{"version": "x" * 1000}])(body)
    ),
    "no version": lambda body: whole(model=None)(choice(weight_versions=None)(body)),
}


@both
@pytest.mark.parametrize("change", CORRUPT.values(), ids=list(CORRUPT))
async def test_a_reply_that_breaks_its_contract_is_refused_whole(
    change: Change, names_weights: bool
) -> None:
    stand_in = VLLMStandIn(scale_out=True, change=lambda path, body: change(body))
    with pytest.raises(CorruptReply) as caught:
        await ask(stand_in, names_weights=names_weights)
    assert len(str(caught.value)) < 1000


async def test_a_log_prob_of_another_id_is_refused() -> None:
    def shifted(path: str, body: dict[str, Any]) -> Any:
        body["choices"][0]["logprobs"]["content"][0]["token_id"] += 1
        return body

    with pytest.raises(CorruptReply, match="position 0 is of id 53, the id is 52"):
        await ask(VLLMStandIn(scale_out=True, change=shifted), names_weights=True)


@both
async def test_an_abort_is_an_abort_however_little_it_carries(names_weights: bool) -> None:
    body = {"choices": [{"finish_reason": "abort"}]}
    with pytest.raises(Aborted, match=TAG.request):
        await ask(
            VLLMStandIn(scale_out=True, change=lambda path, _: body), names_weights=names_weights
        )


ODD = {
    "list": ([], CorruptReply),
    "text": ("fine", CorruptReply),
    "empty": ({}, CorruptReply),
    "error 504": ({"error": {"code": 504, "message": "late"}}, TransientError),
    "error 400": ({"error": {"code": 400, "message": "no"}}, Refused),
    "error 401": ({"error": {"code": 401}}, FatalError),
}


@pytest.mark.parametrize(("body", "kind"), ODD.values(), ids=list(ODD))
async def test_another_body_with_status_200_has_its_class(body: Any, kind: type) -> None:
    with pytest.raises(RequestError) as caught:
        await ask(VLLMStandIn(change=lambda path, _: Answer.of(body)))
    assert type(caught.value) is kind


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
choices = st.fixed_dictionaries(
    {},
    optional={
        "finish_reason": st.sampled_from(["stop", "length"]) | json_values,
        "stop_reason": json_values,
        "token_ids": st.lists(st.integers(0, 9), max_size=2) | json_values,
        "logprobs": st.fixed_dictionaries({"token_logprobs": json_values, "content": json_values})
        | json_values,
        "weight_versions": st.lists(st.fixed_dictionaries({"version": json_values})) | json_values,
        "prompt_token_ids": json_values,
    },
)
bodies = st.fixed_dictionaries(
    {"choices": st.lists(choices, min_size=1, max_size=1) | json_values},
    optional={"id": json_values, "model": json_values, "usage": json_values},
)


@pytest.mark.parametrize("endpoint", [COMPLETIONS, GENERATE], ids=["completions", "generate"])
@given(body=json_values | bodies)
def test_any_json_is_a_sound_reply_or_a_request_error(endpoint: Endpoint, body: Any) -> None:
    asked = Asked(prefix=(1, 2), sampling=SAMPLING, max_tokens=8, rid="r", name="r")
    try:
        reply = endpoint.read(body, asked)
    except RequestError:
        return
    assert len(reply.ids) == len(reply.log_probs)
    assert all(type(token) is int for token in reply.ids)
    assert all(math.isfinite(value) for value in reply.log_probs)


# --- failures and their repetition ------------------------------------------------------


async def execute(url: str, **options: Any) -> tuple[Generation | RequestError, RequestCounts]:
    """One request under an Execution that waits for nothing, and its books."""
    counts = RequestCounts()
    execution = options.pop("execution", Execution(retry=PATIENT))
    async with policy_at(url, version="mine", **options) as policy:
        try:
            reply = await execution.generate(
                policy, (1, 2, 3), SAMPLING, name="r", tree="t", version="mine", counts=counts
            )
        except RequestError as error:
            return error, counts
        return reply.generation, counts


async def test_faults_that_pass_are_survived() -> None:
    faults = iter([None, Answer(b"busy", 503, {"retry-after": "0"}), "abort"])

    def change(path: str, body: dict[str, Any]) -> Any:
        fault = next(faults, body)
        return {"choices": [{"finish_reason": "abort"}]} if fault == "abort" else fault

    async with Loopback(VLLMStandIn(change=change)) as loopback:
        reply, counts = await execute(loopback.url)
    assert isinstance(reply, Generation)
    assert (counts.sent, counts.failed, counts.accepted) == (4, 3, 1)
    assert len({ask.json["request_id"] for ask in loopback.asks}) == 4


@pytest.mark.parametrize(
    ("options", "tries", "kind"),
    [
        ({"served_model": "nope"}, 1, FatalError),
        ({"names_weights": True}, 1, FatalError),
        ({"tokenizer_size": 300}, 1, Refused),
    ],
    ids=["unknown model", "no such endpoint", "unknown id"],
)
async def test_what_vllm_refuses_is_tried_once(
    options: dict[str, Any], tries: int, kind: type
) -> None:
    class Large(ByteTokenizer):
        def __len__(self) -> int:
            return 300

    large = options.pop("tokenizer_size", None) is not None
    counts = RequestCounts()
    async with (
        Loopback(VLLMStandIn()) as loopback,
        OpenAIPolicy(loopback.url, tokenizer=Large(), version="mine", **options) as policy,
    ):
        with pytest.raises(kind) as caught:
            await Execution(retry=PATIENT).generate(
                policy,
                (299,) if large else (1,),
                SAMPLING,
                name="r",
                tree="t",
                version="mine",
                counts=counts,
            )
    assert (counts.sent, counts.failed) == (tries, tries)
    assert loopback.url in str(caught.value)


async def test_vllm_takes_no_temperature_above_two() -> None:
    with pytest.raises(Refused, match=r"in \[0, 2\], got 4"):
        await ask(VLLMStandIn(), Sampling(temperature=4.0, max_tokens=1))


async def test_a_caller_that_goes_closes_its_connection() -> None:
    """At which vLLM aborts: there is nothing else to be told."""
    gone = asyncio.Event()

    class Hanging:
        async def say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            await reader.read()
            gone.set()
            return False

    async def hang(ask: Ask) -> Any:
        return Hanging()

    async with Loopback(hang) as loopback, policy_at(loopback.url) as policy:
        task = asyncio.create_task(policy.generate((1,), SAMPLING, tag=TAG))
        await loopback.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 10)
        assert len(loopback.asks) == 1


async def test_a_reply_far_beyond_what_was_asked_is_cut_off() -> None:
    bloated = Answer(b'{"text": "' + b"x" * 2**21 + b'"}')
    async with Loopback(VLLMStandIn(change=lambda path, body: bloated)) as loopback:
        error, counts = await execute(loopback.url)
    assert type(error) is CorruptReply
    assert f"exceeds {2**20 + 8 * 512 + 3 * 16} bytes" in str(error)
    assert counts.sent == 2


# --- whole trees ------------------------------------------------------------------------


async def collect(policy: Policy) -> Collection:
    agent = Agent(
        policy,
        parser=Segments(3),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=13),
        execution=Execution(retry=PATIENT),
    )
    collector = Collector(
        agent=agent, env=WalkEnv(), search=Search.two_phase(tokens=200, concurrency=4)
    )
    async with collector:
        return await collector.collect(Problem(id="walk", prompt="Walk."))


@both
async def test_a_tree_over_the_wire_is_the_tree_in_process(names_weights: bool) -> None:
    """Ids, log-probs, names and credit: all that is stored is equal, byte for byte."""
    stand_in = VLLMStandIn(ScriptedPolicy(walk_script(12)), scale_out=True)
    stand_in.model = stand_in.weights = "scripted"
    async with (
        Loopback(stand_in) as loopback,
        policy_at(loopback.url, context_limit=4096, names_weights=names_weights) as policy,
    ):
        remote = await collect(policy)
    local = await collect(ScriptedPolicy(walk_script(12)))
    assert list(map(encode_actor, remote.actor)) == list(map(encode_actor, local.actor))
    assert len(remote.actor) > 20


async def test_the_books_hold_what_the_server_counted() -> None:
    stand_in = VLLMStandIn(ScriptedPolicy(walk_script(12)), page=4)
    async with Loopback(stand_in) as loopback, policy_at(loopback.url) as policy:
        books = (await collect(policy)).ledger
    assert (books.tokens_submitted, books.tokens_cached) == (stand_in.queried, stand_in.hits)
    assert stand_in.hits > 0


@both
@pytest.mark.parametrize("flip", [0, 1, 7])
async def test_weights_that_change_inside_a_tree_end_it_without_samples(
    flip: int, names_weights: bool
) -> None:
    stand_in = VLLMStandIn(ScriptedPolicy(walk_script(12)), scale_out=True)
    numbers = itertools.count()

    def change(path: str, body: dict[str, Any]) -> Any:
        if next(numbers) > flip:
            body["model"] = "later"
            for one in body["choices"]:
                one["weight_versions"] = [{"version": "later"}]
        return body

    stand_in.change = change
    async with (
        Loopback(stand_in) as loopback,
        policy_at(loopback.url, names_weights=names_weights) as policy,
    ):
        with pytest.raises(CollectionFailed, match="replied 'later'"):
            await collect(policy)


async def test_weights_that_change_inside_a_reply_are_fatal() -> None:
    spans = choice(weight_versions=[{"version": "1"}, {"version": "2"}])
    stand_in = VLLMStandIn(scale_out=True, change=lambda path, body: spans(body))
    with pytest.raises(FatalError, match="weights changed inside one reply: '1', '2'"):
        await ask(stand_in, names_weights=True, version="1")


# --- what the server runs ---------------------------------------------------------------


@both
async def test_refresh_reads_the_weights_and_a_new_name_is_a_new_version(
    names_weights: bool,
) -> None:
    stand_in = VLLMStandIn(scale_out=True)
    async with (
        Loopback(stand_in) as loopback,
        policy_at(loopback.url, names_weights=names_weights) as policy,
    ):
        assert isinstance(policy, Policy)
        assert isinstance(policy, Refreshable)
        assert policy.version == ""
        for name in ("actor-0001", "actor-0002"):
            stand_in.model = stand_in.weights = name
            await policy.refresh()
            assert policy.version == name
        asks = len(loopback.asks)
        async with policy_at(loopback.url, version="mine") as pinned:
            await pinned.refresh()
            assert pinned.version == "mine"
        assert len(loopback.asks) == asks


async def test_an_adapter_is_found_by_its_name() -> None:
    cards = [{"id": "base", "max_model_len": 90}, {"id": "actor-7", "max_model_len": 70}]

    async def serve(ask: Ask) -> Answer:
        return Answer.of({"data": cards} if ask.path == "/v1/models" else {})

    async with Loopback(serve) as loopback:
        for name, version in ((None, "base"), ("actor-7", "actor-7")):
            async with policy_at(loopback.url, served_model=name) as policy:
                await policy.refresh()
                assert policy.version == version


class TwoTokens(VLLMStandIn):
    """Two ids with logits 0 and 1; reports raw or processed log-probs."""

    def __init__(self, convention: LogProbConvention) -> None:
        super().__init__(context=90)
        self.convention = convention

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path != COMPLETIONS.path:
            return await super().__call__(ask)
        asked = ask.json
        is_raw = self.convention is LogProbConvention.RAW
        value = -math.log1p(math.exp(-1 if is_raw else -1 / asked["temperature"]))
        one = {"token_ids": [1], "logprobs": {"token_logprobs": [value]}, "finish_reason": "length"}
        return Answer.of({"id": asked["request_id"], "model": "two", "choices": [one]})


class TwoByteTokenizer(ByteTokenizer):
    """Two ids, and a prompt of one."""

    def __len__(self) -> int:
        return 2

    def apply_chat_template(self, messages: Any, **_: Any) -> list[int]:
        return [0]


@pytest.mark.parametrize("convention", [LogProbConvention.RAW, LogProbConvention.PROCESSED])
async def test_a_probe_finds_the_convention_and_the_context(convention: LogProbConvention) -> None:
    async with Loopback(TwoTokens(convention)) as loopback:
        async with OpenAIPolicy(loopback.url, tokenizer=TwoByteTokenizer()) as policy:
            report = await policy.probe()
            assert report.convention is policy.log_probs is convention
            assert report.context_limit == policy.context_limit == 90
            assert (report.version, report.model) == ("stand-in", "/models/stand-in")
        cold = OpenAIPolicy(
            loopback.url,
            tokenizer=TwoByteTokenizer(),
            train_temperature=0.5,
            log_probs="processed",
        )
        async with cold:
            if convention is LogProbConvention.PROCESSED:
                assert (await cold.probe()).convention is convention
            else:
                with pytest.raises(ConfigError, match="--logprobs-mode processed_logprobs"):
                    await cold.probe()


def test_at_another_temperature_the_servers_mode_must_be_declared() -> None:
    """vLLM reports raw log-probs unless told otherwise, so that is what is assumed."""
    with pytest.raises(ConfigError, match="--logprobs-mode processed_logprobs"):
        policy_at("http://localhost", train_temperature=0.7)
    processed = policy_at("http://localhost", train_temperature=0.7, log_probs="processed")
    assert processed.log_probs is LogProbConvention.PROCESSED


def test_secrets_show_nowhere() -> None:
    for policy in (
        policy_at("http://me:canary@host:1"),
        policy_at("http://host:1", api_key="canary"),
    ):
        assert repr(policy) == "OpenAIPolicy('http://host:1', version='')"


# --- the stand-in's pages ---------------------------------------------------------------


@given(
    page=st.integers(1, 6), stored=st.lists(st.lists(st.integers(0, 1), max_size=14), max_size=4)
)
def test_a_paged_cache_finds_the_longest_whole_pages_but_never_the_last_token(
    page: int, stored: list[list[int]]
) -> None:
    cache = PagedCache(page)
    for ids in stored:
        cache.store(ids)
    for prefix in (*stored, [0] * 14):
        shared = max((_common(prefix, ids) for ids in stored), default=0)
        assert cache.found(prefix) == max(0, min(shared, len(prefix) - 1)) // page * page


def _common(left: list[int], right: list[int]) -> int:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    return sum(1 for _ in pairs)
