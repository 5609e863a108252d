"""A pool before servers that are full: what is in flight falls to what they take, and recovers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import AdmissionPool, Execution, ExecutionServices, RetryPolicy, Sampling
from focus.errors import TransientError
from focus.execution import RequestCounts
from focus.policies.faults import classify_status
from focus.testing.policies import ScriptedPolicy

events = st.lists(st.booleans(), max_size=300)


async def hold_all(pool: AdmissionPool, told: Sequence[bool]) -> list[int]:
    """Tell a pool, kept full, what became of its requests; its limit after each."""
    limits = []
    for is_answer in told:
        held = [pool.permit() for _ in range(pool.limit)]
        for permit in held:
            await permit.__aenter__()
        if is_answer:
            pool.answered()
        else:
            pool.turned_away()
        limits.append(pool.limit)
        for permit in held:
            await permit.__aexit__(None, None, None)
    return limits


@given(capacity=st.integers(1, 20), told=events)
def test_a_limit_stays_between_one_and_the_capacity(capacity: int, told: list[bool]) -> None:
    pool = AdmissionPool(capacity)
    limits = asyncio.run(hold_all(pool, told))
    assert all(1 <= limit <= capacity for limit in limits)
    for before, after, is_answer in zip(limits, limits[1:], told[1:], strict=False):
        assert (after >= before) if is_answer else (after <= before)


@given(capacity=st.integers(1, 64), refused=st.integers(0, 80))
def test_each_request_that_is_turned_away_takes_one_off(capacity: int, refused: int) -> None:
    pool = AdmissionPool(capacity)
    asyncio.run(hold_all(pool, [False] * refused))
    assert pool.limit == max(1, capacity - refused)


def test_the_documented_pace_of_recovery() -> None:
    pool = AdmissionPool(64)
    asyncio.run(hold_all(pool, [False] * 70))
    limits = asyncio.run(hold_all(pool, [True] * 200))
    assert limits.index(2) + 1 == 23
    assert limits.index(64) + 1 == 180


def test_an_answer_to_a_pool_that_is_not_full_changes_nothing() -> None:
    async def main() -> AdmissionPool:
        pool = AdmissionPool(4)
        pool.turned_away()
        async with pool.permit():
            for _ in range(100):
                pool.answered()
        return pool

    assert asyncio.run(main()).limit == 3


@pytest.mark.parametrize("status", [400, 404, 408, 429, 500, 502, 503, 504])
def test_only_a_full_server_slows_a_pool_down(status: int) -> None:
    pool = AdmissionPool(8)

    class Refusing(ScriptedPolicy):
        async def generate(self, *args: object, **options: object) -> object:
            error = classify_status(status)
            assert error is not None
            raise error

    run = Execution(services=ExecutionServices(pool), retry=RetryPolicy(attempts=3, base_s=0.0))
    request = run.generate(
        Refusing(lambda *_: ""),
        (1,),
        Sampling(max_tokens=1),
        name="t/0/0",
        tree="t",
        version="v",
        counts=RequestCounts(),
    )
    with pytest.raises(Exception, match=str(status)):
        asyncio.run(request)
    assert pool.limit == (5 if status in (429, 503) else 8)


@given(told=events, seed=st.integers(0, 5))
def test_waiters_are_let_in_whenever_there_is_room_and_no_permit_is_lost(
    told: list[bool], seed: int
) -> None:
    pool = AdmissionPool(6)

    async def one(is_answer: bool) -> None:
        async with pool.permit():
            await asyncio.sleep(0)
            if is_answer:
                pool.answered()
            else:
                pool.turned_away()

    async def main() -> None:
        await asyncio.gather(*(one(is_answer) for is_answer in told))

    asyncio.run(asyncio.wait_for(main(), 120))
    found = pool.statistics
    assert (found.in_use, found.waiting) == (0, 0)
    assert found.peak <= 6


def test_a_wish_to_wait_comes_with_being_full() -> None:
    busy = classify_status(503, headers={"retry-after": "2"})
    assert isinstance(busy, TransientError)
    assert (busy.is_full, busy.retry_after_s) == (True, 2.0)
