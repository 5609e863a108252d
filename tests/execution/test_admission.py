"""AdmissionPool: permits are never exceeded, never lost, and given in order of asking."""

import asyncio
import gc
import random
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from focus import AdmissionPool
from focus.errors import ConfigError, LifecycleError
from focus.promises.storms import Meter, in_threads, storm_over


class Caller:
    """One task that wants a permit, holds it until told, and can be cancelled at any time."""

    def __init__(self, pool: AdmissionPool, loop: asyncio.AbstractEventLoop) -> None:
        self.holds = False
        self.refused = False
        self._go = asyncio.Event()
        self.task = loop.create_task(self._run(pool))

    async def _run(self, pool: AdmissionPool) -> None:
        try:
            async with pool.permit():
                self.holds = True
                try:
                    await self._go.wait()
                finally:
                    self.holds = False
        except LifecycleError:
            self.refused = True

    def finish(self) -> None:
        self._go.set()


class PoolModel(RuleBasedStateMachine):
    """The pool beside a plain list: the first `capacity` living callers hold permits."""

    @initialize(capacity=st.integers(1, 3))
    def build(self, capacity: int) -> None:
        self.pool = AdmissionPool(capacity)
        self.loop = asyncio.new_event_loop()
        self.capacity = capacity
        self.line: list[Caller] = []
        self.is_closed = False

    def settle(self) -> None:
        for _ in range(8):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def leave(self, caller: Caller) -> None:
        self.line.remove(caller)

    @rule()
    def acquire(self) -> None:
        caller = Caller(self.pool, self.loop)
        self.settle()
        assert caller.refused == self.is_closed
        if not self.is_closed:
            self.line.append(caller)

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Whether it holds, waits, or was granted a permit it has not noticed yet."""
        victim = data.draw(st.sampled_from(self.line))
        victim.task.cancel()
        self.leave(victim)
        self.settle()

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.line[: self.capacity]))
        holder.finish()
        self.leave(holder)
        self.settle()

    @precondition(lambda self: len(self.line) > self.capacity)
    @rule(data=st.data(), ticks=st.integers(0, 3))
    def release_and_cancel_the_next(self, data: st.DataObject, ticks: int) -> None:
        """The permit is on its way to a caller that is cancelled meanwhile."""
        holder = data.draw(st.sampled_from(self.line[: self.capacity]))
        heir = self.line[self.capacity]
        holder.finish()
        for _ in range(ticks):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        heir.task.cancel()
        self.leave(holder)
        self.leave(heir)
        self.settle()

    @precondition(lambda self: not self.is_closed)
    @rule()
    def close(self) -> None:
        self.pool.close()
        self.is_closed = True
        self.settle()
        for waiting in self.line[self.capacity :]:
            assert waiting.refused
        del self.line[self.capacity :]

    @invariant()
    def the_first_in_line_hold_the_permits(self) -> None:
        if not hasattr(self, "pool"):
            return
        holds = [caller.holds for caller in self.line]
        expected = min(self.capacity, len(self.line))
        assert holds == [True] * expected + [False] * (len(self.line) - expected)
        found = self.pool.statistics
        assert (found.in_use, found.waiting) == (expected, len(self.line) - expected)
        assert found.peak <= found.capacity

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for caller in self.line:
            caller.task.cancel()
        self.settle()
        assert self.pool.statistics.in_use == 0
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


TestPoolModel = PoolModel.TestCase
TestPoolModel.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("capacity", [1, 3])
def test_three_loops_in_threads_share_one_pool(capacity: int, closes: bool) -> None:
    pool, meter = AdmissionPool(capacity), Meter(capacity)
    assert storm_over(pool, meter, random.Random(capacity), rounds=100, closes=closes) == 0
    assert meter.exceeded == 0
    assert meter.operations > 3 * 100 * 8
    found = pool.statistics
    assert (found.in_use, found.waiting) == (0, 0)
    assert found.peak <= capacity


def test_closing_while_threads_wait_fails_the_waiters_and_keeps_the_books() -> None:
    pool, held = AdmissionPool(1), threading.Event()
    finish = threading.Event()
    refused: list[int] = []

    async def hold() -> None:
        async with pool.permit():
            held.set()
            await asyncio.to_thread(finish.wait, 120)

    async def wait() -> None:
        held.wait(timeout=120)
        tasks = [asyncio.create_task(one(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert pool.statistics.waiting == 5
        pool.close()
        await asyncio.gather(*tasks)
        finish.set()

    async def one(number: int) -> None:
        try:
            async with pool.permit():
                raise AssertionError("a closed pool gave a permit")
        except LifecycleError:
            refused.append(number)

    assert in_threads(hold, wait) == 0
    assert sorted(refused) == [0, 1, 2, 3, 4]
    assert pool.statistics.in_use == 0


def test_a_loop_that_is_thrown_away_takes_no_permit_with_it() -> None:
    pool = AdmissionPool(1)

    async def hold() -> None:
        async with pool.permit():
            await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(hold()) for _ in range(3)]
    for _ in range(4):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert pool.statistics == type(pool.statistics)(capacity=1, in_use=1, peak=1, waiting=2)
    loop.set_exception_handler(lambda *_: None)
    loop.close()
    tasks.clear()
    gc.collect()

    async def use() -> None:
        async with asyncio.timeout(30), pool.permit():
            assert pool.statistics.in_use == 1

    asyncio.run(use())
    assert (pool.statistics.in_use, pool.statistics.waiting) == (0, 0)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_pool_needs_a_permit(capacity: int) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        AdmissionPool(capacity)
