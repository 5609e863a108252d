"""The SGLang client: exact ids and log-probs, or a typed error that says why not."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

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
from focus.errors import (
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
from focus.policies.sglang import SGLangPolicy
from focus.records.codec import encode_actor
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tokens import Generation

from .loopback import Answer, Ask, ByteTokenizer, FakeEngine, Loopback

pytestmark = pytest.mark.anyio

TAG = RequestTag(request="run/0/0/ab/3/1/1", tree="run/0/0/ab")
SAMPLING = Sampling(temperature=0.7, max_tokens=8)
TOKENIZER = ByteTokenizer()
PATIENT = RetryPolicy(base_s=0.0)


def policy_at(url: str, **options: Any) -> SGLangPolicy:
    return SGLangPolicy(url, tokenizer=TOKENIZER, **options)


# --- what is sent -----------------------------------------------------------------------


async def test_a_request_asks_for_exactly_the_law_and_for_output_log_probs_only() -> None:
    """B25: no log-probs of the prompt, whose request would switch the prefix cache off."""
    sampling = SAMPLING.merged(Sampling(top_p=0.9, top_k=5, stop=(7, 9), seed=11))
    async with Loopback(FakeEngine()) as loopback, policy_at(loopback.url) as policy:
        await policy.generate((1, 2, 3), sampling, tag=TAG)
        await policy.generate((1, 2, 3), Sampling(max_tokens=1))
    full, bare = (ask.json for ask in loopback.asked("/generate"))
    assert full.keys() == {"rid", "input_ids", "sampling_params", "return_logprob"}
    assert full["input_ids"] == [1, 2, 3]
    assert full["return_logprob"] is True
    neutral = {
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
    assert full["sampling_params"] == neutral | {
        "max_new_tokens": 8,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "stop_token_ids": [7, 9],
        "sampling_seed": 11,
    }
    assert bare["sampling_params"] == neutral | {
        "max_new_tokens": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
    }


async def test_ids_of_requests_are_never_each_others_beginning() -> None:
    """Engines abort every request whose id starts with the named one."""
    tags = [RequestTag(f"t/{n}", "t") for n in (1, 1, 10, 11)]
    async with (
        Loopback(FakeEngine()) as loopback,
        policy_at(loopback.url) as one,
        policy_at(loopback.url) as other,
    ):
        for tag in tags:
            await one.generate((1,), SAMPLING, tag=tag)
            await other.generate((1,), SAMPLING, tag=tag)
    rids = [ask.json["rid"] for ask in loopback.asked("/generate")]
    assert len(rids) == 8
    assert not [(a, b) for a in rids for b in rids if a is not b and b.startswith(a)]
    assert {rid.partition("~")[0] for rid in rids} == {"t/1", "t/10", "t/11"}


@pytest.mark.parametrize(("tree", "is_sent_as_is"), [("run/0/0/ab", True), ("läuft\r\n/0", False)])
async def test_a_tree_is_its_routing_key(tree: str, is_sent_as_is: bool) -> None:
    async with Loopback(FakeEngine()) as loopback, policy_at(loopback.url) as policy:
        for index in range(2):
            await policy.generate((1,), SAMPLING, tag=RequestTag(f"r/{index}", tree))
        await policy.generate((1,), SAMPLING)
    first, second, none = (ask.headers.get("x-smg-routing-key") for ask in loopback.asks)
    assert first == second is not None
    assert none is None
    assert (first == tree) is is_sent_as_is


async def test_nothing_is_sent_that_does_not_fit() -> None:
    """B28, B29: no request for less than one token, none past the context, nothing clamped."""
    async with Loopback(FakeEngine()) as loopback:
        async with policy_at(loopback.url, context_limit=10) as policy:
            for length, wanted in ((8, 3), (10, 1), (10, None), (27, 4)):
                with pytest.raises(Refused, match="do not fit into the context of 10"):
                    await policy.generate((1,) * length, Sampling(max_tokens=wanted))
            for prefix in ((), (257,), (-1,)):
                with pytest.raises(Refused):
                    await policy.generate(prefix, SAMPLING)
            assert not loopback.asks
            await policy.generate((1,) * 8, Sampling())
        async with policy_at(loopback.url) as unbounded:
            with pytest.raises(Refused, match="bounds the reply"):
                await unbounded.generate((1,), Sampling())
    assert [ask.json["sampling_params"]["max_new_tokens"] for ask in loopback.asks] == [2]


# --- failures and their repetition ------------------------------------------------------


async def execute(
    url: str, *, execution: Execution | None = None, **options: Any
) -> tuple[Generation | RequestError, RequestCounts]:
    """One request under an Execution that waits for nothing, and its books."""
    counts = RequestCounts()
    execution = execution or Execution(retry=PATIENT)
    async with policy_at(url, version="scripted", **options) as policy:
        try:
            reply = await execution.generate(
                policy, (1, 2, 3), SAMPLING, name="r", tree="t", version="scripted", counts=counts
            )
        except RequestError as error:
            return error, counts
        return reply.generation, counts


async def test_faults_that_pass_are_survived() -> None:
    """B38: a reset, a 503 and an abort; the fourth try is the reply."""
    abort = {"meta_info": {"finish_reason": {"type": "abort"}}}
    busy = Answer(b"no available workers", 503, {"retry-after": "0"})

    def change(number: int, body: dict[str, Any]) -> Any:
        return [None, busy, abort, body][number]

    async with Loopback(FakeEngine(change=change)) as loopback:
        reply, counts = await execute(loopback.url)
    assert isinstance(reply, Generation)
    assert (counts.sent, counts.failed, counts.accepted) == (4, 3, 1)
    assert len({ask.json["rid"] for ask in loopback.asks}) == 4


@pytest.mark.parametrize(
    ("answer", "tries", "kind"),
    [
        (Answer.of({"error": {"message": "too long"}}, 400), 1, Refused),
        (Answer(status=404), 1, FatalError),
        (Answer.of({"meta_info": {}}), 2, CorruptReply),
        (Answer(b"<html>"), 2, CorruptReply),
        (Answer(status=502), 5, TransientError),
    ],
    ids=["400", "404", "bad body", "html", "502"],
)
async def test_a_fault_that_stays_is_tried_as_often_as_its_class_says(
    answer: Answer, tries: int, kind: type
) -> None:
    async with Loopback(FakeEngine(change=lambda number, body: answer)) as loopback:
        error, counts = await execute(loopback.url)
    assert type(error) is kind
    assert (counts.sent, counts.failed) == (tries, tries)
    assert f"attempts={tries}" in str(error)


async def test_a_dead_server_is_named_with_url_and_request() -> None:
    async with Loopback(FakeEngine()) as loopback:
        url = loopback.url
    error, _ = await execute(url)
    assert type(error) is TransientError
    assert url in str(error)
    assert "request=r/5" in str(error)


async def test_a_busy_server_gets_what_it_can_take() -> None:
    """B43: a queue of four and Retry-After; all of forty complete, none twice."""
    running, served = 0, []

    async def busy(ask: Ask) -> Answer:
        nonlocal running
        if running >= 4:
            return Answer(status=503, headers={"retry-after": "0"})
        running += 1
        await asyncio.sleep(0.002)
        running -= 1
        served.append(ask.json["rid"].split("/")[0])
        answer = await FakeEngine()(ask)
        assert isinstance(answer, Answer)
        return answer

    execution = Execution(retry=RetryPolicy(attempts=60, base_s=0.001, most_s=0.01))
    async with Loopback(busy) as loopback, policy_at(loopback.url) as policy:
        counts = RequestCounts()
        await asyncio.gather(
            *(
                execution.generate(
                    policy,
                    (1,),
                    SAMPLING,
                    name=str(number),
                    tree="t",
                    version="scripted",
                    counts=counts,
                )
                for number in range(40)
            )
        )
    assert sorted(served) == sorted(map(str, range(40)))
    assert counts.accepted == 40


class Hanging(FakeEngine):
    """Samples for ever, and takes note of aborts."""

    def __init__(self, *, is_router: bool = False, workers: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.is_router = is_router
        self.workers = workers
        self.aborted = asyncio.Event()

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path == "/generate":
            await asyncio.Event().wait()
        if ask.path == "/abort_request" and not self.is_router:
            self.aborted.set()
            return Answer()
        if ask.path == "/workers" and self.is_router:
            return Answer.of({"workers": [{"url": url} for url in self.workers], "total": 1})
        return await super().__call__(ask)


async def test_a_silent_server_ends_at_the_deadline_and_is_told() -> None:
    """B37: typed, permit back, and the engine does not sample on for nobody."""
    execution = Execution(deadline_s=3.0, retry=RetryPolicy(attempts=1))
    async with Loopback(Hanging()) as loopback:
        error, _ = await execute(loopback.url, execution=execution)
        (abort,) = loopback.asked("/abort_request")
        (sent,) = loopback.asked("/generate")
    assert type(error) is TransientError
    assert "no reply within 3 s" in str(error)
    assert abort.json == {"rid": sent.json["rid"]}
    assert execution.shared.pool.statistics.in_use == 0


async def test_a_reply_far_beyond_what_was_asked_is_cut_off() -> None:
    bloated = Answer(b'{"text": "' + b"x" * 2**21 + b'"}')
    async with Loopback(FakeEngine(change=lambda number, body: bloated)) as loopback:
        error, counts = await execute(loopback.url)
    assert type(error) is CorruptReply
    assert f"exceeds {2**20 + 8 * 512} bytes" in str(error)
    assert counts.sent == 2


async def test_cancelled_at_any_moment_it_leaves_nothing_and_works_on() -> None:
    """R6, R7: every tick of one request is a cancel point; the same client is used on."""

    async def handle(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        asked = json.loads(request.content)
        await asyncio.sleep(0)
        if "sampling_params" not in asked:
            return httpx.Response(200)
        return httpx.Response(200, json=await FakeEngine().reply(asked))

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
        policy = policy_at("http://nowhere.invalid", client=client)
        before = asyncio.all_tasks()
        ticks, finished = 0, False
        while not finished:
            task = asyncio.create_task(policy.generate((1,), SAMPLING, tag=TAG))
            for _ in range(ticks):
                await asyncio.sleep(0)
            finished = not task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(outcome, Generation if finished else asyncio.CancelledError)
            assert asyncio.all_tasks() == before
            ticks += 1
        assert ticks > 4


@pytest.mark.parametrize("tells_workers", [False, True])
async def test_behind_a_router_workers_are_told_only_on_request(tells_workers: bool) -> None:
    worker = Hanging()
    async with Loopback(worker) as at_worker:
        router = Hanging(is_router=True, workers=(at_worker.url, "file:///etc", "::"))
        async with (
            Loopback(router) as loopback,
            policy_at(loopback.url, abort_at_workers=tells_workers) as policy,
        ):
            task = asyncio.create_task(policy.generate((1,), SAMPLING, tag=TAG))
            await loopback.arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            sent = loopback.asked("/generate")[0].json["rid"]
        told = [ask.json for ask in at_worker.asked("/abort_request")]
    assert told == ([{"rid": sent}] if tells_workers else [])
    assert at_worker.connections == len(told)


# --- whole trees ------------------------------------------------------------------------


def collector_over(policy: Policy, *, tokens: int = 200) -> Collector:
    agent = Agent(
        policy,
        parser=Segments(3),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=13),
        execution=Execution(retry=PATIENT),
    )
    return Collector(
        agent=agent, env=WalkEnv(), search=Search.two_phase(tokens=tokens, concurrency=4)
    )


async def collect(policy: Policy) -> Collection:
    async with collector_over(policy) as collector:
        return await collector.collect(Problem(id="walk", prompt="Walk."))


async def test_a_tree_over_the_wire_is_the_tree_in_process() -> None:
    """Ids, log-probs, names and credit: all that is stored is equal, byte for byte."""
    scripted = ScriptedPolicy(walk_script(12))
    engine = FakeEngine(scripted)
    async with Loopback(engine) as loopback, policy_at(loopback.url, context_limit=4096) as policy:
        remote = await collect(policy)
    local = await collect(ScriptedPolicy(walk_script(12)))
    assert list(map(encode_actor, remote.actor)) == list(map(encode_actor, local.actor))
    assert len(remote.actor) > 20


@pytest.mark.parametrize("flip", [0, 1, 7])
async def test_weights_that_change_inside_a_tree_end_it_without_samples(flip: int) -> None:
    """B34, A6: both versions are named, and it is not tried again."""
    engine = FakeEngine(ScriptedPolicy(walk_script(12)))

    def change(number: int, body: dict[str, Any]) -> dict[str, Any]:
        if number >= flip:
            body["meta_info"]["weight_version"] = "later"
        return body

    engine.change = change
    async with Loopback(engine) as loopback, policy_at(loopback.url) as policy:
        with pytest.raises(CollectionFailed, match="pinned 'scripted', replied 'later'") as caught:
            await collect(policy)
        assert isinstance(caught.value.__cause__, FatalError)
        engine.version = "later"
        assert (await collect(policy)).tree.header.policy_version == "later"


async def test_a_router_that_is_down_at_first_is_waited_for() -> None:
    down = iter([True, True, True, False])

    async def late(ask: Ask) -> Answer | bytes | None:
        if next(down, False):
            return Answer(b'{"error": "no_available_workers"}', 503)
        return await FakeEngine(ScriptedPolicy(walk_script(12)))(ask)

    async with Loopback(late) as loopback, policy_at(loopback.url) as policy:
        assert (await collect(policy)).failures == ()


# --- what the server runs ---------------------------------------------------------------


class Informed(FakeEngine):
    """Answers some information paths as told."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers = answers

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path != "/generate":
            return self.answers.get(ask.path[1:], Answer(status=404))
        return await super().__call__(ask)


@pytest.mark.parametrize(
    ("answers", "version", "paths"),
    [
        ({"model_info": Answer.of({"weight_version": "w1"})}, "w1", 1),
        ({"get_model_info": Answer.of({"weight_version": "w2"})}, "w2", 2),
        ({"model_info": Answer.of({})}, "scripted", 2),
        ({"model_info": Answer(b"router")}, "scripted", 3),
        ({}, "scripted", 3),
    ],
    ids=["new name", "old name", "no version", "no json", "nothing"],
)
async def test_the_version_is_read_where_the_server_tells_it(
    answers: dict[str, Answer], version: str, paths: int
) -> None:
    async with Loopback(Informed(**answers)) as loopback, policy_at(loopback.url) as policy:
        assert isinstance(policy, Policy)
        assert isinstance(policy, Refreshable)
        assert policy.version == ""
        await policy.refresh()
        assert policy.version == version
        assert len(loopback.asks) == paths


async def test_a_server_without_versions_needs_one_given() -> None:
    engine = Informed()
    engine.version = None
    async with Loopback(engine) as loopback:
        async with policy_at(loopback.url) as policy:
            with pytest.raises(ConfigError, match="pass version="):
                await policy.refresh()
        asks = len(loopback.asks)
        async with policy_at(loopback.url, version="mine") as policy:
            await policy.refresh()
            assert policy.version == "mine"
        assert len(loopback.asks) == asks


class TwoTokens(FakeEngine):
    """B22: two ids with logits 0 and 1; reports one of the three conventions."""

    def __init__(self, convention: LogProbConvention, **info: Any) -> None:
        super().__init__()
        self.convention = convention
        self.info = info

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path == "/server_info":
            return Answer.of(self.info)
        if ask.path == "/generate":
            return Answer.of(self.one_token(ask.json))
        return await super().__call__(ask)

    def one_token(self, asked: dict[str, Any]) -> dict[str, Any]:
        temperature = asked["sampling_params"]["temperature"]
        value = {
            LogProbConvention.PROCESSED: -math.log1p(math.exp(-1 / temperature)),
            LogProbConvention.RAW: -math.log1p(math.exp(-1)),
            LogProbConvention.DIVIDED: -math.log1p(math.exp(-1)) / temperature,
        }[self.convention]
        meta = {"id": asked["rid"], "finish_reason": {"type": "length", "length": 1}}
        pairs = [[value, 1, None]]
        return {"meta_info": meta | {"weight_version": "w", "output_token_logprobs": pairs}}


class TwoByteTokenizer(ByteTokenizer):
    """Two ids, and a prompt of one."""

    def __len__(self) -> int:
        return 2

    def apply_chat_template(self, messages: Any, **_: Any) -> list[int]:
        return [0]


@pytest.mark.parametrize("train_temperature", [0.5, 1.0])
@pytest.mark.parametrize("convention", list(LogProbConvention)[:3])
async def test_a_probe_finds_the_convention(
    convention: LogProbConvention, train_temperature: float
) -> None:
    async with Loopback(TwoTokens(convention, max_req_input_len=90)) as loopback:
        policy = SGLangPolicy(
            loopback.url, tokenizer=TwoByteTokenizer(), train_temperature=train_temperature
        )
        async with policy:
            if convention is LogProbConvention.PROCESSED or train_temperature == 1.0:
                report = await policy.probe()
                assert report.convention is policy.log_probs is convention
                assert (report.version, report.context_limit) == ("scripted", 90)
                assert (report.model, policy.context_limit) == ("bytes", 90)
            else:
                with pytest.raises(ConfigError, match=f"reports {convention.value} log-probs"):
                    await policy.probe()


@pytest.mark.parametrize(
    ("info", "limit"),
    [({"context_length": 8192}, 8186), ({}, None), ({"context_length": "?"}, None)],
)
async def test_the_context_is_what_the_engine_takes(info: Any, limit: int | None) -> None:
    async with (
        Loopback(TwoTokens(LogProbConvention.PROCESSED, **info)) as loopback,
        SGLangPolicy(loopback.url, tokenizer=TwoByteTokenizer()) as policy,
    ):
        assert (await policy.probe()).context_limit == limit


# --- settings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"tokenizer": None},
        {"model": "builtin"},
        {"context_limit": 1},
        {"train_temperature": 0.0},
        {"log_probs": "guessed"},
        {"log_probs": "unclear"},
        {"log_probs": "raw", "train_temperature": 0.7},
        {"profile": "nope"},
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SGLangPolicy("http://localhost", **{"tokenizer": TOKENIZER, **options})


def test_raw_log_probs_do_at_temperature_one() -> None:
    policy = policy_at("http://localhost", log_probs="raw")
    assert policy.log_probs is LogProbConvention.RAW


async def test_a_borrowed_client_is_used_and_left_open() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        meta = {"id": asked["rid"], "finish_reason": {"type": "length"}, "weight_version": "w"}
        body = {"meta_info": meta | {"output_token_logprobs": [[-0.1, 5, None]]}}
        return httpx.Response(200, json=body)

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
        async with policy_at("http://nowhere.invalid", client=client) as policy:
            assert (await policy.generate((1,), Sampling(max_tokens=1))).ids == (5,)
        assert not client.is_closed


def test_secrets_show_nowhere() -> None:
    for policy in (
        policy_at("http://me:canary@host:1"),
        policy_at("http://host:1", api_key="canary"),
    ):
        assert repr(policy) == "SGLangPolicy('http://host:1', version='')"
