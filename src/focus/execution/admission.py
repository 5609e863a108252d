"""Permits that bound how many network calls run at once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType

from focus.errors import ConfigError, LifecycleError

__all__ = ("AdmissionPool", "PoolStatistics")

_CALM = 256
"""The longer nothing is turned away, the faster a pool opens: the k-th answer by k/256."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A pool at one moment: permits in use, their highest number so far, callers waiting."""

    capacity: int
    in_use: int
    peak: int
    waiting: int


@dataclass(slots=True, eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    granted: bool = field(default=False)


class AdmissionPool:
    """At most `capacity` permits at once, first come first served; a call takes one.

    May be built before any event loop exists and shared by collectors on several loops
    and threads of one process. A permit is held for one call only and never while another
    is awaited, so capacity 1 cannot deadlock.

    While servers turn requests away because they are full, fewer are let through: each
    request that is turned away lowers `limit` by one, down to one; while the pool is full the
    k-th answer in a row raises it by k/256, up to `capacity`. So what is in flight falls at
    once to what the servers take, 23 answers buy one try at more, and 180 open a pool of 64
    from nothing.
    """

    # Under the lock nothing is called or made that could start a garbage collection: it may
    # throw away a forgotten coroutine that holds a permit, which would want the lock again.

    def __init__(self, capacity: int = 64) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity must be >= 1, got {capacity}")
        self._capacity = capacity
        self._limit = float(capacity)
        self._calm = 0
        self._lock = threading.Lock()
        self._in_use = 0
        self._peak = 0
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    @property
    def statistics(self) -> PoolStatistics:
        with self._lock:
            in_use, peak, waiting = self._in_use, self._peak, len(self._waiters)
        return PoolStatistics(self._capacity, in_use, peak, waiting)

    @property
    def limit(self) -> int:
        """Permits given out at present: `capacity`, or fewer while servers are full."""
        return int(self._limit)

    def turned_away(self) -> None:
        """A server was full: let one request fewer through at once, but always one."""
        with self._lock:
            self._calm = 0
            self._limit -= 1.0
            if self._limit < 1.0:
                self._limit = 1.0

    def answered(self) -> None:
        """A request was answered whose permit is still held: let more through, where it counts.

        A pool that is not full learns nothing from an answer, and stays as it is.
        """
        if self._in_use + 1 <= self._limit:
            return
        with self._lock:
            if self._in_use + 1 <= self._limit:
                return
            self._calm += 1
            self._limit += self._calm / _CALM
            if self._limit > self._capacity:
                self._limit = float(self._capacity)
            if not self._waiters or self._in_use + 1 > self._limit:
                return
            self._in_use += 1
            if self._peak < self._in_use:
                self._peak = self._in_use
        self.release()

    def permit(self) -> _Permit:
        """Hold one permit inside the block: ``async with pool.permit():``.

        Raises:
            LifecycleError: on entering, the pool is closed.
        """
        return _Permit(self)

    def close(self) -> None:
        """Refuse new callers and fail those that wait; permits in use finish normally."""
        nobody: deque[_Waiter] = deque()
        with self._lock:
            self._closed = True
            waiters, self._waiters = self._waiters, nobody
        for waiter in waiters:
            _wake(waiter, LifecycleError("the admission pool was closed"))

    def try_acquire(self) -> bool:
        """Take a permit, to be released; False where none is free or others wait for one.

        Raises:
            LifecycleError: the pool is closed.
        """
        return self._take_or_queue(None)

    async def acquire(self) -> None:
        """Take a permit, to be released, once it is this caller's turn.

        Raises:
            LifecycleError: the pool is closed.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        if self._take_or_queue(waiter):
            return
        try:
            await waiter.future
        except BaseException:  # cancelled, the pool closed, or the coroutine thrown away
            self._withdraw(waiter)
            raise

    def release(self) -> None:
        """Hand the permit to the first in line whose loop still runs, or put it back."""
        while True:
            with self._lock:
                if not self._waiters or self._in_use > self._limit:
                    self._in_use -= 1
                    return
                waiter = self._waiters.popleft()
                waiter.granted = True
            if _wake(waiter):
                return

    def _take_or_queue(self, waiter: _Waiter | None) -> bool:
        """Take a free permit (there is none while somebody waits), or put `waiter` in line."""
        with self._lock:
            is_closed = self._closed
            is_free = not is_closed and self._in_use + 1 <= self._limit
            if is_free:
                self._in_use += 1
                if self._peak < self._in_use:
                    self._peak = self._in_use
            elif waiter is not None and not is_closed:
                self._waiters.append(waiter)
        if is_closed:
            raise LifecycleError("the admission pool is closed")
        return is_free

    def _withdraw(self, waiter: _Waiter) -> None:
        with self._lock:
            if not waiter.granted:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                return
        self.release()


class _Permit:
    """One permit while its block runs."""

    __slots__ = ("_pool",)

    def __init__(self, pool: AdmissionPool) -> None:
        self._pool = pool

    async def __aenter__(self) -> None:
        if not self._pool.try_acquire():
            await self._pool.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.release()


def _wake(waiter: _Waiter, error: Exception | None = None) -> bool:
    """Resolve a waiter on its own loop; False when that loop is gone."""

    def resolve() -> None:
        if waiter.future.done():
            return
        if error is None:
            waiter.future.set_result(None)
        else:
            waiter.future.set_exception(error)

    if _running_loop() is waiter.loop:
        resolve()  # no need to wake a loop that runs this very call
        return True
    try:
        waiter.loop.call_soon_threadsafe(resolve)
    except RuntimeError:
        return False
    return True


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
