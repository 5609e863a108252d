"""Manners of concurrent work: who is cancelled, what is finished all the same, who fails first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

__all__ = ("siblings", "stray_cancellation", "to_its_end", "within")

T = TypeVar("T")

_AGAIN_S = 0.01
"""Pause before work that swallowed its cancellation at the deadline is cancelled once more."""


@contextmanager
def stray_cancellation(instead: Exception) -> Iterator[None]:
    """Raise `instead` for a CancelledError that nobody sent to this task.

    Foreign code raises one when something of its own was cancelled (a future, a helper
    task). Let through, it would end our task without a word, and whoever waits for its
    result would wait for ever.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        raise instead from error


class _Alarm:
    """Cancels a task at a deadline, and again until `stop`."""

    __slots__ = ("_handle", "_loop", "_task", "rang")

    def __init__(self, task: asyncio.Task[Any], deadline_s: float) -> None:
        self._task = task
        self._loop = task.get_loop()
        self._handle = self._loop.call_later(deadline_s, self._ring)
        self.rang = 0

    def _ring(self) -> None:
        self.rang += 1
        self._task.cancel()
        self._handle = self._loop.call_later(_AGAIN_S, self._ring)

    def stop(self) -> None:
        self._handle.cancel()
        for _ in range(self.rang):
            self._task.uncancel()


async def within(
    deadline_s: float,
    call: Callable[[], Awaitable[T]],
    *,
    late: Callable[[], Exception],
    stray: Callable[[], Exception],
) -> T:
    """What `call` gives, or a typed error where it gives nothing.

    Work that is cancelled at the deadline and answers all the same is still answered.

    Args:
        deadline_s: most seconds it may take.
        call: foreign code.
        late: what to raise once the deadline has passed.
        stray: what to raise for a CancelledError that nobody sent to this task; see
            `stray_cancellation`.
    """
    task = asyncio.current_task()
    assert task is not None, "foreign code is awaited in a task"
    before = task.cancelling()
    alarm = _Alarm(task, deadline_s)
    try:
        return await call()
    except asyncio.CancelledError as error:
        if task.cancelling() - alarm.rang > before:
            raise
        if alarm.rang:
            raise late() from None
        raise stray() from error
    finally:
        alarm.stop()


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await clean-up in a task of its own, which no cancellation of the caller cuts short.

    The caller's cancellation, however often it came, is raised once `work` is done.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is None or task.cancelled():
        return task.result()
    raise cancelled from task.exception()


@asynccontextmanager
async def siblings() -> AsyncIterator[TaskGroup]:
    """A task group whose first error cancels the rest and comes out as itself."""
    first: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            yield group
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
    if first is not None:
        raise first
