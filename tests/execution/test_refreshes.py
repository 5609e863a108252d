"""Trees that begin at once share a refresh; none is told of weights older than its question."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from focus import AdmissionPool, Execution, ExecutionServices, RetryPolicy
from focus.errors import RequestError, TransientError
from focus.testing.policies import ScriptedPolicy

pytestmark = pytest.mark.anyio

TREES = 12


class Remote(ScriptedPolicy):
    """Its version is the number of the refresh that read it; refreshes fail as planned."""

    def __init__(self, plan: Callable[[int], Awaitable[None]] | None = None) -> None:
        super().__init__(lambda *_: "")
        self.sent = 0
        self._plan = plan

    async def refresh(self) -> None:
        self.sent += 1
        mine = self.sent
        await asyncio.sleep(0)
        if self._plan is not None:
            await self._plan(mine)
        self.version = str(mine)


def executions(pool: AdmissionPool, attempts: int = 3) -> list[Execution]:
    """One per tree, with services in common."""
    services = ExecutionServices(pool)
    retry = RetryPolicy(attempts=attempts, base_s=0.0)
    return [Execution(services=services, retry=retry) for _ in range(TREES)]


async def test_all_who_ask_before_a_call_is_sent_share_it() -> None:
    policy, pool = Remote(), AdmissionPool(1)
    async with pool.permit():
        asking = [
            asyncio.create_task(one.refresh(policy, name=f"t{number}"))
            for number, one in enumerate(executions(pool))
        ]
        await asyncio.sleep(0)
        assert policy.sent == 0
    await asyncio.gather(*asking)
    assert policy.sent == 1


async def test_who_asks_once_it_is_sent_is_not_served_by_it() -> None:
    policy, pool = Remote(), AdmissionPool(TREES)
    seen: list[tuple[int, int]] = []

    async def ask(one: Execution, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        before = policy.sent
        await one.refresh(policy, name=f"t{turns}")
        seen.append((before, int(policy.version)))

    await asyncio.gather(*(ask(one, turns) for turns, one in enumerate(executions(pool))))
    assert len(seen) == TREES
    assert all(version > before for before, version in seen)
    assert pool.statistics.in_use == 0


async def test_a_failed_call_is_a_failed_try_of_each_who_shared_it() -> None:
    async def fails_twice(number: int) -> None:
        if number <= 2:
            raise TransientError("busy")

    policy, pool = Remote(fails_twice), AdmissionPool(1)
    await asyncio.gather(*(one.refresh(policy, name="t") for one in executions(pool)))
    assert 3 <= policy.sent <= 3 * TREES

    async def fails(number: int) -> None:
        raise TransientError("busy")

    policy = Remote(fails)
    asked = [one.refresh(policy, name=f"t{n}") for n, one in enumerate(executions(pool, 2))]
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert len({id(error) for error in errors}) == TREES
    for number, error in enumerate(errors):
        assert isinstance(error, TransientError)
        assert error.where["request"] == f"t{number}/2"
    assert pool.statistics.in_use == pool.statistics.waiting == 0


@pytest.mark.parametrize("victim", range(TREES))
@pytest.mark.parametrize("turns", range(5))
async def test_cancelling_one_harms_no_other(victim: int, turns: int) -> None:
    policy, pool = Remote(), AdmissionPool(1)
    tasks = [
        asyncio.create_task(one.refresh(policy, name=f"t{number}"))
        for number, one in enumerate(executions(pool))
    ]
    for _ in range(turns):
        await asyncio.sleep(0)
    was_done = tasks[victim].done()
    tasks[victim].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert not any(isinstance(result, RequestError) for result in results)
    failed = [number for number, result in enumerate(results) if result is not None]
    assert failed == ([] if was_done else [victim])
    assert int(policy.version) >= 1
    assert (pool.statistics.in_use, pool.statistics.waiting) == (0, 0)
