"""Execution: retries by kind of fault, deadlines, permits and books on every path."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus import AdmissionPool, Execution, ExecutionServices, RetryPolicy, Sampling
from focus.errors import (
    Aborted,
    ConfigError,
    CorruptReply,
    FatalError,
    LifecycleError,
    Refused,
    RequestError,
    TransientError,
)
from focus.execution import Reply, RequestCounts
from focus.policies.base import RequestTag
from focus.testing.policies import ScriptedPolicy, Wrapper
from focus.tokens import FinishReason, Generation, TokenIds

PREFIX = (1, 2, 3)
GOOD = Generation(
    ids=(5, 6), log_probs=(-0.5, -0.25), finish=FinishReason.STOP, version="v1", cached_tokens=1
)
ASK = Sampling(max_tokens=4)

Answer = Callable[[], Awaitable[Any]]


class Planned(Wrapper):
    """Answers the n-th try with the n-th answer of a list; the last one repeats."""

    def __init__(self, answers: Sequence[Any]) -> None:
        super().__init__(ScriptedPolicy(lambda *_: ""))
        self._answers = list(answers)
        self.tags: list[RequestTag] = []

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Any:
        assert tag is not None
        answer = self._answers[min(len(self.tags), len(self._answers) - 1)]
        self.tags.append(tag)
        await asyncio.sleep(0)
        if isinstance(answer, BaseException):
            raise answer
        return await answer() if callable(answer) else answer


def execution(**changes: Any) -> Execution:
    retry = changes.pop("retry", RetryPolicy(base_s=0.0))
    return Execution(services=ExecutionServices(AdmissionPool(1)), retry=retry, **changes)


async def ask(
    policy: Planned, run: Execution, counts: RequestCounts | None = None, *, name: str = "t/0/0"
) -> Reply:
    return await run.generate(
        policy,
        PREFIX,
        ASK,
        name=name,
        tree="t",
        version="v1",
        counts=counts if counts is not None else RequestCounts(),
    )


def asked(answers: Sequence[Any], **changes: Any) -> tuple[Any, Planned, RequestCounts]:
    """Reply or error, the policy, and the books; checks what holds on every path."""
    policy, run, counts = Planned(answers), execution(**changes), RequestCounts()

    async def main() -> Reply:
        return await ask(policy, run, counts)

    try:
        result: Any = asyncio.run(main())
    except RequestError as error:
        result = error
    assert run.shared.pool.statistics.in_use == 0
    closed = counts.accepted + counts.failed + counts.cancelled + counts.late
    assert counts.sent == len(policy.tags) == closed
    assert counts.accepted == isinstance(result, Reply)
    return result, policy, counts


def fresh(kind: type[RequestError]) -> Answer:
    async def answer() -> Any:
        raise kind("no")

    return answer


@pytest.mark.parametrize(
    ("kind", "tries"),
    [(TransientError, 5), (Aborted, 5), (CorruptReply, 2), (Refused, 1), (FatalError, 1)],
)
def test_each_kind_of_fault_has_its_number_of_tries(kind: type[RequestError], tries: int) -> None:
    error, policy, counts = asked([fresh(kind)])
    assert type(error) is kind
    assert len(policy.tags) == tries
    assert counts.failed == tries
    assert error.where["attempts"] == tries
    assert error.where["request"] == f"t/0/0/{tries}"
    assert error.where["elapsed_s"] >= 0


@pytest.mark.parametrize("kind", [TransientError, Aborted])
def test_success_after_honest_faults_is_success(kind: type[RequestError]) -> None:
    reply, _, counts = asked([fresh(kind), fresh(kind), GOOD])
    assert reply == Reply(GOOD, tries=3)
    assert (counts.failed, counts.accepted) == (2, 1)


@settings(max_examples=50, deadline=None)
@given(
    attempts=st.integers(1, 6),
    corrupt=st.integers(1, 6),
    faults=st.lists(st.sampled_from([TransientError, Aborted, CorruptReply, Refused, FatalError])),
)
def test_tries_never_exceed_what_the_policy_allows(
    attempts: int, corrupt: int, faults: list[type[RequestError]]
) -> None:
    retry = RetryPolicy(attempts=attempts, corrupt_attempts=corrupt, base_s=0.0)
    result, policy, counts = asked([*map(fresh, faults), GOOD], retry=retry)
    assert len(policy.tags) <= max(attempts, corrupt)
    final = [kind for kind in faults[: len(policy.tags) - 1] if kind in (Refused, FatalError)]
    assert not final, "a fault that cannot pass was repeated"
    assert isinstance(result, Reply) == (counts.accepted == 1)


def test_request_names_are_fixed_before_sending_and_unique_per_try() -> None:
    _, policy, _ = asked([fresh(TransientError)])
    assert [tag.request for tag in policy.tags] == [f"t/0/0/{n}" for n in range(1, 6)]
    assert {tag.tree for tag in policy.tags} == {"t"}


@given(
    wish=st.none() | st.floats(0, 100),
    tries=st.integers(1, 5000),
    base=st.floats(0, 10),
    most=st.floats(0, 60),
    name=st.text(),
)
def test_pauses_double_up_to_a_cap_and_never_undercut_the_servers_wish(
    wish: float | None, tries: int, base: float, most: float, name: str
) -> None:
    retry = RetryPolicy(base_s=base, most_s=most)
    error = TransientError("busy")
    error.retry_after_s = wish
    pause = retry.pause_s(error, tries, name=name)
    assert pause == retry.pause_s(error, tries, name=name)
    assert pause >= (wish or 0.0)
    assert pause <= max(wish or 0.0, most)
    if wish is None:
        assert pause >= min(most, base * 2.0 ** min(tries - 1, 64))


def test_two_requests_do_not_come_back_at_the_same_moment() -> None:
    error = TransientError("busy")
    pauses = {RetryPolicy().pause_s(error, 1, name=f"t/{n}/0") for n in range(50)}
    assert len(pauses) == 50
    assert all(0.25 <= pause <= 0.5 for pause in pauses)


def test_a_wish_of_the_server_is_waited_for() -> None:
    busy = TransientError("busy")
    busy.retry_after_s = 0.02
    run = execution()

    async def main() -> float:
        started = asyncio.get_running_loop().time()
        await ask(Planned([busy, GOOD]), run)
        return asyncio.get_running_loop().time() - started

    assert asyncio.run(main()) >= 0.02


def test_a_silent_server_is_a_transient_fault_at_the_deadline() -> None:
    async def silent() -> Any:
        await asyncio.Event().wait()

    retry = RetryPolicy(attempts=2, base_s=0.0)
    error, policy, counts = asked([silent], deadline_s=0.01, retry=retry)
    assert type(error) is TransientError
    assert "no reply within 0.01 s" in str(error)
    assert len(policy.tags) == counts.late == 2
    assert counts.failed == 0


def test_a_timeout_of_the_policys_own_is_not_called_ours() -> None:
    error, _, _ = asked([TimeoutError("read"), TimeoutError(), Refused("stop")])
    assert isinstance(error, Refused)
    error, _, _ = asked([TimeoutError("read")], retry=RetryPolicy(attempts=1))
    assert type(error) is TransientError
    assert "TimeoutError: read" in str(error)
    assert "no reply within" not in str(error)


def test_the_deadline_does_not_count_the_wait_for_a_permit() -> None:
    run = execution(deadline_s=0.2)
    held = asyncio.Event()

    async def main() -> Reply:
        async def hold() -> None:
            async with run.shared.pool.permit():
                held.set()
                await asyncio.sleep(0.25)

        holder = asyncio.create_task(hold())
        await held.wait()
        reply = await ask(Planned([GOOD]), run)
        await holder
        return reply

    assert asyncio.run(main()).tries == 1


def test_no_permit_is_held_during_a_pause() -> None:
    busy = TransientError("busy")
    busy.retry_after_s = 0.05
    run = execution()

    async def main() -> list[str]:
        order: list[str] = []

        async def note(name: str, answers: list[Any]) -> None:
            await ask(Planned(answers), run, name=name)
            order.append(name)

        await asyncio.gather(note("slow", [busy, GOOD]), note("quick", [GOOD]))
        return order

    assert asyncio.run(main()) == ["quick", "slow"]


def test_a_call_cancelled_inside_the_policy_is_an_abort_and_not_our_end() -> None:
    async def inner() -> Any:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    reply, _, counts = asked([inner, GOOD])
    assert reply == Reply(GOOD, tries=2)
    assert (counts.failed, counts.cancelled) == (1, 0)
    error, policy, _ = asked([inner])
    assert type(error) is Aborted
    assert len(policy.tags) == 5


@pytest.mark.parametrize("error", [KeyError("boom"), ValueError(), ZeroDivisionError("x")])
def test_an_unknown_error_is_refused_once_with_its_cause(error: Exception) -> None:
    refused, policy, _ = asked([error])
    assert type(refused) is Refused
    assert refused.__cause__ is error
    assert len(policy.tags) == 1


def test_a_closed_pool_is_fatal() -> None:
    run = execution()
    run.shared.pool.close()
    with pytest.raises(FatalError) as caught:
        asyncio.run(ask(Planned([GOOD]), run))
    assert isinstance(caught.value.__cause__, LifecycleError)


def changed(**fields: Any) -> Generation:
    return replace(GOOD, **fields)


NOT_NUMBERS = st.sampled_from([None, float("nan"), float("-inf"), float("inf"), True, 1, "x"])
FAULTS = st.one_of(
    st.sampled_from([None, {}, "", 7, (5, 6), [5, 6]]),
    st.builds(lambda lp: changed(log_probs=lp), st.sampled_from([(), (-0.5,), (-0.5,) * 3])),
    st.builds(lambda n: changed(ids=(5,) * n), st.sampled_from([0, 1, 3, 4, 5, 100])),
    st.builds(lambda bad: changed(log_probs=(-0.5, bad)), NOT_NUMBERS),
    st.builds(lambda p: changed(log_probs=(p, -0.5)), st.floats(2e-6, 10)),
    st.builds(
        lambda bad: changed(ids=(bad, 6)),
        st.sampled_from([-1, 257, 10**9, 5.0, "5", None, True]),
    ),
    st.just(changed(ids=(), log_probs=())),
    st.just(changed(ids=(5,) * 5, log_probs=(-0.5,) * 5)),
    st.just(changed(finish=FinishReason.LENGTH)),
    st.builds(lambda f: changed(finish=f), st.sampled_from([None, "", "eos", 3])),
    st.builds(lambda v: changed(version=v), st.sampled_from([None, 1, b"v1"])),
    st.builds(lambda ids: changed(ids=ids), st.sampled_from([None, [5, 6], "56"])),
    st.builds(lambda lp: changed(log_probs=lp), st.sampled_from([None, [-0.5, -0.25], 0])),
    st.builds(lambda c: changed(cached_tokens=c), st.sampled_from([-1, 1.0, "1", True])),
)


@settings(max_examples=200, deadline=None)
@given(FAULTS)
def test_a_reply_that_breaks_its_contract_is_refused_and_nothing_of_it_used(bad: Any) -> None:
    error, policy, counts = asked([bad])
    assert type(error) is CorruptReply
    assert len(policy.tags) == 2
    assert counts.accepted == 0
    reply, _, _ = asked([bad, GOOD])
    assert reply == Reply(GOOD, tries=2)


@given(
    ids=st.lists(st.integers(0, 256), min_size=1, max_size=4),
    finish=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    data=st.data(),
)
@settings(max_examples=50, deadline=None)
def test_a_sound_reply_is_passed_on_untouched(
    ids: list[int], finish: FinishReason, data: st.DataObject
) -> None:
    if finish is FinishReason.LENGTH:
        ids = (ids * 4)[:4]
    sizes = {"min_size": len(ids), "max_size": len(ids)}
    log_probs = data.draw(st.lists(st.floats(-1e6, 1e-6), **sizes))
    sound = changed(ids=tuple(ids), log_probs=tuple(log_probs), finish=finish)
    reply, _, counts = asked([sound])
    assert reply.generation is sound
    assert counts.discarded_tokens == 0


def test_an_abort_is_no_reply() -> None:
    error, policy, counts = asked([changed(finish=FinishReason.ABORT, ids=(), log_probs=())])
    assert type(error) is Aborted
    assert len(policy.tags) == counts.failed == 5


def test_other_weights_are_fatal_at_once() -> None:
    error, policy, counts = asked([changed(version="v2")])
    assert type(error) is FatalError
    assert "'v1'" in str(error)
    assert "'v2'" in str(error)
    assert len(policy.tags) == 1
    assert counts.discarded_tokens == 2


def test_refused_replies_are_counted_in_tokens() -> None:
    bad = changed(ids=(5, 6, 7), log_probs=(-0.5, -0.5, float("nan")))
    _, _, counts = asked([bad, GOOD])
    assert counts.discarded_tokens == 3
    assert counts.prompt_tokens == 2 * len(PREFIX)
    assert counts.cached_tokens == 2


@pytest.mark.parametrize("seed", range(20))
def test_the_books_close_under_faults_and_cancellation(seed: int) -> None:
    """sent = accepted + failed + cancelled, and every permit comes back."""
    rng = random.Random(seed)
    run = Execution(
        services=ExecutionServices(AdmissionPool(3)),
        retry=RetryPolicy(attempts=3, base_s=0.0),
    )
    books = [RequestCounts() for _ in range(30)]

    async def slow() -> Any:
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
        return GOOD

    def answers() -> list[Any]:
        kinds = [TransientError, Aborted, CorruptReply, Refused, FatalError]
        faults = [fresh(rng.choice(kinds)), None, KeyError("x"), GOOD, slow, slow, slow]
        return [rng.choice(faults) for _ in range(3)]

    async def main() -> None:
        policies = [Planned(answers()) for _ in books]
        tasks = [
            asyncio.create_task(ask(policy, run, counts))
            for policy, counts in zip(policies, books, strict=True)
        ]
        for task in rng.sample(tasks, 10):
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for counts, policy, result in zip(books, policies, results, strict=True):
            assert counts.sent == counts.accepted + counts.failed + counts.cancelled
            assert counts.sent == len(policy.tags)
            assert counts.accepted == isinstance(result, Reply)

    asyncio.run(main())
    found = run.shared.pool.statistics
    assert (found.in_use, found.waiting) == (0, 0)
    assert found.peak <= 3


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=6))
def test_books_add_up_and_an_unknown_cache_stays_unknown(
    replies: list[tuple[int, int | None]],
) -> None:
    one, parts = RequestCounts(), []
    for prompt, cached in replies:
        one.count_prompt(prompt, cached)
        part = RequestCounts()
        part.count_prompt(prompt, cached)
        parts.append(part)
    total = RequestCounts()
    for part in parts:
        total.add(part)
    assert total == one
    assert total.prompt_tokens == sum(prompt for prompt, _ in replies)
    assert (total.cached_tokens is None) == any(cached is None for _, cached in replies)


def test_an_execution_closes_what_it_made_and_nothing_else() -> None:
    async def main() -> None:
        lent = ExecutionServices(AdmissionPool(1))
        borrower, maker = Execution(services=lent), Execution()
        made = maker.shared
        assert (borrower.owns_services, maker.owns_services) == (False, True)
        await borrower.aclose()
        await maker.aclose()
        await maker.aclose()
        async with lent.pool.permit():
            pass
        with pytest.raises(LifecycleError):
            async with made.pool.permit():
                pass

    asyncio.run(main())


@pytest.mark.parametrize(
    "settings",
    [{"attempts": 0}, {"corrupt_attempts": 0}, {"base_s": -1.0}, {"most_s": float("nan")}],
)
def test_a_retry_policy_that_cannot_be_followed_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**settings)


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, float("nan")])
def test_a_deadline_lies_in_the_future(deadline_s: float) -> None:
    with pytest.raises(ConfigError):
        Execution(deadline_s=deadline_s)
