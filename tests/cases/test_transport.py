"""Family (e): a failure is typed and counted; it is never a reply, an empty text or a zero."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import httpx
import pytest
from tests.policies.loopback import Answer, Ask, ByteTokenizer, Loopback
from tests.slime.host.arguments import slime_args

from focus import (
    AdmissionPool,
    Execution,
    ExecutionServices,
    Grpo,
    RetryPolicy,
    Sampling,
    Search,
)
from focus.agent import SegmentAction, StepResult
from focus.errors import CollectionFailed, CorruptReply, EnvError, Refused, TransientError
from focus.execution import RequestCounts
from focus.policies.faults import classify_exception, classify_status
from focus.policies.sglang import SGLangPolicy
from focus.policies.slime import SlimeHost, SlimePolicy
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import END, ScriptedPolicy
from focus.tokens import Generation

from .servers import Engine, collect, grow, sampled, served, written

pytestmark = pytest.mark.anyio


def hurried(deadline_s: float = 0.05, *, attempts: int = 2, permits: int = 4) -> Execution:
    return Execution(
        services=ExecutionServices(AdmissionPool(permits)),
        deadline_s=deadline_s,
        retry=RetryPolicy(attempts=attempts, base_s=0.0),
    )


async def never(asked: Mapping[str, Any], number: int) -> None:
    await asyncio.Event().wait()


async def test_b37_a_silent_server_is_a_typed_timeout_at_our_deadline() -> None:
    execution = hurried()
    async with served(Engine(never), version="v1") as policy:  # nothing else is asked for
        with anyio.fail_after(60), pytest.raises(CollectionFailed) as caught:
            await collect(policy, WalkEnv(), execution=execution)
    assert isinstance(caught.value.__cause__, TransientError)
    assert "no reply within 0.05 s" in str(caught.value)
    assert execution.shared.pool.statistics.in_use == 0


@pytest.mark.usefixtures("slime")
async def test_b37_our_deadline_rules_on_a_client_without_one() -> None:
    """Slime's client has no timeout; it is borrowed, and stays open."""
    async with (
        Loopback(Engine(never)) as loopback,
        httpx.AsyncClient(timeout=None) as client,
    ):
        policy = SlimePolicy(
            slime_args(sglang_router_port=loopback.port),
            version="v1",
            host=SlimeHost(client=client),
        )
        with anyio.fail_after(60), pytest.raises(CollectionFailed, match="no reply within"):
            await collect(policy, WalkEnv(), execution=hurried())
        assert not client.is_closed


ERRORS = {
    "the case": ({"error": {"code": 504}}, TransientError, "504"),
    "at the top": ({"code": 503, "message": "full"}, TransientError, "503"),
    "a refusal": ({"error": {"code": 400, "message": "no"}}, Refused, "400"),
    "choices null": ({"choices": None}, CorruptReply, "choices"),
    "no code": ({"error": "upstream gone"}, CorruptReply, "upstream gone"),
}


@pytest.mark.parametrize(("body", "kind", "word"), ERRORS.values(), ids=ERRORS)
async def test_b37_a_failure_inside_a_200_body_is_the_failure_it_names(
    body: dict[str, Any], kind: type[Exception], word: str
) -> None:
    with pytest.raises(CollectionFailed) as caught:
        await grow(Engine(lambda asked, number: body), WalkEnv(), execution=hurried(60.0))
    assert type(caught.value.__cause__) is kind
    assert word in str(caught.value)


NAMELESS = [
    httpx.ReadTimeout(""),
    httpx.WriteTimeout(""),
    httpx.PoolTimeout(""),
    httpx.ConnectTimeout(""),
    httpx.ReadError(""),
    httpx.ConnectError(""),
    httpx.RemoteProtocolError(""),
    TimeoutError(),
    ConnectionResetError(),
    BrokenPipeError(),
]


class Failing(ScriptedPolicy):
    """Raises what is in the list, one per request, then answers."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(lambda *_: "+-+")
        self._errors = list(errors)

    async def generate(self, *args: Any, **options: Any) -> Generation:
        if self._errors:
            self.requests += 1
            raise self._errors.pop(0)
        return await super().generate(*args, **options)


async def test_b38_the_third_attempt_succeeds() -> None:
    policy = Failing(httpx.ReadTimeout(""), httpx.ReadError(""))
    found = await collect(policy, WalkEnv())
    (edge,) = [node.incoming for node in found.tree.edges()]
    assert edge.provenance.tries == policy.requests == 3
    assert found.ledger.requests_failed == 2


@pytest.mark.parametrize("error", NAMELESS, ids=lambda error: type(error).__name__)
async def test_b38_faults_are_told_by_type_and_shown_by_name(error: Exception) -> None:
    """Their texts are empty, so nothing could be read from them."""
    assert type(classify_exception(error)) is TransientError
    with pytest.raises(CollectionFailed, match=type(error).__name__):
        await collect(Failing(*[error] * 2), WalkEnv(), execution=hurried(60.0))


async def test_b40_a_reply_that_comes_after_its_deadline_is_dropped_and_counted() -> None:
    """Attempt 1 answers once attempt 2 has; the tree has one child, the books one late try."""
    second, sent = asyncio.Event(), asyncio.Event()

    async def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        if number == 0:
            await second.wait()
            sent.set()
            return written("----")(asked, number)
        second.set()
        return written("++++")(asked, number)

    async with served(Engine(write)) as policy:
        found = await collect(policy, WalkEnv(), segment=8, execution=hurried(0.2))
        await sent.wait()
    assert [bytes(record.response[:-1]) for record in found.actor] == [b"++++"]
    ledger = found.ledger
    assert (ledger.requests_late, ledger.requests_accepted, ledger.requests_sent) == (1, 1, 2)
    assert ledger.balances
    assert len(found.tree) == 2


REWARDS = (1, 1, 1, 0, 0, None, 0, 0)
"""Of the case's eight children; the sixth gets 500 until its budget ends."""


async def eight(asked: Mapping[str, Any], number: int) -> Any:
    child = int(asked["rid"].partition("~")[0].split("/")[-3])
    reward = REWARDS[child]
    if reward is None:
        return Answer(status=500)
    return sampled(asked, [*(b"+" if reward else b"-"), END])


async def test_b41_a_failed_child_is_no_zero_in_the_baseline() -> None:
    options: dict[str, Any] = {
        "search": Search.flat(8),
        "credit": Grpo(),
        "execution": hurried(60.0),
    }
    with pytest.raises(CollectionFailed, match="HTTP 500"):
        await grow(Engine(eight), WalkEnv(), **options)
    found = await grow(Engine(eight), WalkEnv(), allow_partial=True, **options)
    assert found.credit.diagnostics[0]["baseline"] == pytest.approx(3 / 7)
    assert len(found.tree.terminals()) == 7
    assert [failure.expansion for failure in found.failures] == [5]


async def test_b41_a_dead_endpoint_is_a_bounded_failure_that_keeps_no_permit() -> None:
    async with Loopback(Engine(written("x"))) as loopback:
        url = loopback.url
    execution = hurried(60.0, permits=2)
    async with SGLangPolicy(url, tokenizer=ByteTokenizer(), version="v1") as policy:
        with anyio.fail_after(60), pytest.raises(CollectionFailed, match="ConnectError"):
            await collect(policy, WalkEnv(), search=Search.flat(8), execution=execution)
    assert execution.shared.pool.statistics.in_use == 0


class Queue:
    """A server that holds at most `room` requests and turns others away, at once."""

    def __init__(self, room: int, *, status: int) -> None:
        self._room, self._status = room, status
        self.held = self.refused = 0
        self.served: list[str] = []
        self.refused_after: list[int] = []

    async def __call__(self, ask: Ask) -> Answer:
        if self.held >= self._room:
            self.refused_after.append(len(self.served))
            return Answer.of({"error": "queue full"}, self._status, retry_after="0")
        self.held += 1
        await asyncio.sleep(0.02)
        self.held -= 1
        self.served.append(ask.json["rid"].partition("~")[0].rpartition("/")[0])
        return Answer.of(sampled(ask.json, [65, END]))


@pytest.mark.parametrize("status", [429, 503])
async def test_b43_a_full_queue_is_waited_for_and_nothing_is_doubled(status: int) -> None:
    """100 requests at a server of 4: all complete, and what is in flight falls to what it takes."""
    queue = Queue(4, status=status)
    pool = AdmissionPool(64)
    execution = Execution(services=ExecutionServices(pool), retry=RetryPolicy(base_s=0.01))
    books = [RequestCounts() for _ in range(100)]
    async with (
        Loopback(queue) as loopback,
        SGLangPolicy(loopback.url, tokenizer=ByteTokenizer(), version="v1") as policy,
    ):

        async def one(number: int) -> None:
            await execution.generate(
                policy,
                (1, 2),
                Sampling(max_tokens=8),
                name=f"t/{number}/0",
                tree="t",
                version="v1",
                counts=books[number],
            )

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(one, number)
    assert sorted(queue.served) == sorted(f"t/{number}/0" for number in range(100))
    assert [counts.accepted for counts in books] == [1] * 100
    refused_late = sum(1 for done in queue.refused_after if done >= 50)
    assert refused_late <= 10


async def test_b43_the_servers_wish_is_the_shortest_pause() -> None:
    busy = classify_status(503, headers={"retry-after": "7"})
    assert isinstance(busy, TransientError)
    assert all(RetryPolicy().pause_s(busy, tries, name="r") >= 7 for tries in range(1, 9))


class Broken(WalkEnv):
    """Its grader loses its connection on the second leaf that ends."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error
        self._ended = 0

    async def step(self, state: int, action: SegmentAction, workspace: object) -> StepResult:
        self._ended += action.finished
        if action.finished and self._ended == 2:
            raise self._error
        return await super().step(state, action, workspace)


@pytest.mark.parametrize("error", [ConnectionError("gone"), TimeoutError(), ValueError("nan")])
async def test_b44_an_outcome_that_nobody_knows_is_no_outcome(error: Exception) -> None:
    """Default: the collection raises with the cause. allow_partial: the leaf is not there."""
    policy = ScriptedPolicy(walk_script(4))
    options: dict[str, Any] = {"search": Search.flat(4, concurrency=1), "segment": 8}
    with pytest.raises(CollectionFailed) as caught:
        await collect(policy, Broken(error), **options)
    fault = caught.value.__cause__
    assert isinstance(fault, EnvError)
    assert fault.__cause__ is error
    found = await collect(policy, Broken(error), allow_partial=True, **options)
    assert len(found.root_outcomes) == len(found.tree.terminals()) == 3
    assert found.ledger.expansions_failed == len(found.failures) == 1
