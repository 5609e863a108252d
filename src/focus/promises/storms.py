"""C1: one admission pool, many loops and threads, callers that come, go and are cancelled."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from focus.errors import LifecycleError
from focus.execution import AdmissionPool
from focus.promises.base import Measured, Stand

__all__ = ("Meter", "in_threads", "permits", "storm", "storm_over")

_CALLERS = 16
_THREADS = 3
_PATIENCE_S = 60.0


class Meter:
    """Counts holders of a pool's permits across threads."""

    def __init__(self, capacity: int) -> None:
        self._lock = threading.Lock()
        self._capacity = capacity
        self.inside = 0
        self.exceeded = 0
        self.operations = 0

    def enter(self) -> None:
        with self._lock:
            self.inside += 1
            self.operations += 1
            self.exceeded += self.inside > self._capacity

    def leave(self) -> None:
        with self._lock:
            self.inside -= 1

    def give_up(self) -> None:
        """A caller that was cancelled, or refused, is an operation too."""
        with self._lock:
            self.operations += 1


def permits(stand: Stand) -> Measured:
    """Storms over fresh pools of 1, 2 and 8 permits; every fourth pool is closed meanwhile.

    Counts permits held beyond the capacity, permits that are gone afterwards and threads
    that do not come back.
    """
    wanted = stand.pick(quick=20_000, full=1_000_000)
    rng = random.Random(0)
    done = exceeded = lost = stuck = pools = 0
    while done < wanted:
        capacity = (1, 2, 8)[pools % 3]
        pool, meter = AdmissionPool(capacity), Meter(capacity)
        closes = pools % 4 == 3
        stuck += storm_over(pool, meter, rng, rounds=20, closes=closes)
        exceeded += meter.exceeded
        lost += _lost(pool, capacity, is_closed=closes)
        done += meter.operations
        pools += 1
        stand.progress(min(done, wanted), wanted)
    detail = {"pools": pools, "exceeded": exceeded, "lost": lost, "deadlocks": stuck}
    return Measured(exceeded + lost + stuck, done, detail)


def storm_over(
    pool: AdmissionPool, meter: Meter, rng: random.Random, *, rounds: int, closes: bool
) -> int:
    """A storm on three loops in threads of their own; returns how many never came back."""
    mains = [
        partial(storm, pool, meter, random.Random(rng.random()), rounds) for _ in range(_THREADS)
    ]
    if closes:
        mains.append(partial(_close_later, pool, rng.randrange(200)))
    return in_threads(*mains)


async def storm(pool: AdmissionPool, meter: Meter, rng: random.Random, rounds: int) -> None:
    """Sixteen callers at a time, some of them cancelled at random moments."""

    async def call() -> None:
        try:
            async with pool.permit():
                meter.enter()
                try:
                    for _ in range(rng.randrange(3)):
                        await asyncio.sleep(0)
                finally:
                    meter.leave()
        except (LifecycleError, asyncio.CancelledError):
            meter.give_up()

    for _ in range(rounds):
        tasks = [asyncio.create_task(call()) for _ in range(_CALLERS)]
        for _ in range(rng.randrange(8)):
            await asyncio.sleep(0)
        for task in rng.sample(tasks, rng.randrange(6)):
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error


async def _close_later(pool: AdmissionPool, ticks: int) -> None:
    for _ in range(ticks):
        await asyncio.sleep(0)
    pool.close()


def in_threads(*mains: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run each on an event loop of its own thread; returns how many are stuck.

    Raises:
        BaseException: the first thing that one of them raised.
    """
    errors: list[BaseException] = []

    def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(main,), daemon=True) for main in mains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=_PATIENCE_S)
    if errors:
        raise errors[0]
    return sum(thread.is_alive() for thread in threads)


def _lost(pool: AdmissionPool, capacity: int, *, is_closed: bool) -> int:
    """Permits that are still out though nobody holds one, or that nobody can get."""
    found = pool.statistics
    lost = found.in_use + found.waiting + max(0, found.peak - capacity)
    return lost if is_closed else lost + asyncio.run(_not_to_be_had(pool, capacity))


async def _not_to_be_had(pool: AdmissionPool, capacity: int) -> int:
    """Take all permits at once; returns how many do not come."""
    got, all_in = 0, asyncio.Event()

    async def hold() -> None:
        nonlocal got
        async with pool.permit():
            got += 1
            if got == capacity:
                all_in.set()
            await all_in.wait()

    tasks = [asyncio.create_task(hold()) for _ in range(capacity)]
    _, waiting = await asyncio.wait(tasks, timeout=_PATIENCE_S)
    for task in waiting:
        task.cancel()
    return capacity - got
