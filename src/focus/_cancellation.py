"""Manners of concurrent work: who is cancelled, what is finished all the same, who fails first."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

__all__ = ("Crew", "siblings", "stray_cancellation", "to_its_end", "within")

T = TypeVar("T")

_AGAIN_S = 1.0
"""Pause before work that swallowed its cancellation is cancelled once more: longer than work may
take to tell its server (`focus.policies.sglang_server`)."""


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
    """Cancels a task at a deadline, and again until it is taken off its clock."""

    __slots__ = ("due", "rang", "task")

    def __init__(self, task: asyncio.Task[Any], due: float) -> None:
        self.task = task
        self.due = due
        self.rang = 0

    def ring(self, now: float) -> None:
        self.rang += 1
        self.task.cancel()
        self.due = now + _AGAIN_S


class _Clock:
    """The alarms of one loop, under one timer: most deadlines are far, and never met.

    The timer stands at the earliest deadline that was set since it last went off, so setting
    an alarm and taking it off cost no more than a set does. The clock knows no timer that it
    set, and so keeps no loop: one that goes off when another is due is out of date.
    """

    def __init__(self) -> None:
        self.alarms: set[_Alarm] = set()
        self.next = math.inf

    def wait_until(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        """Go off at `due`, which is before all that was waited for."""
        self.next = due
        if due < math.inf:
            loop.call_at(due, self._look, due, loop)

    def _look(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        if due != self.next:
            return
        now = loop.time()
        for alarm in tuple(self.alarms):
            if alarm.due <= now:
                alarm.ring(now)
        self.wait_until(min((alarm.due for alarm in self.alarms), default=math.inf), loop)


_clocks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Clock] = weakref.WeakKeyDictionary()


_latest: tuple[Callable[[], asyncio.AbstractEventLoop | None], _Clock] = (lambda: None, _Clock())


def _clock_of(loop: asyncio.AbstractEventLoop) -> _Clock:
    """The loop's own clock; the one asked for last is found at once."""
    global _latest
    known, clock = _latest
    if known() is not loop:
        clock = _clocks.setdefault(loop, _Clock())
        _latest = weakref.ref(loop), clock
    return clock


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
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)
    assert task is not None, "foreign code is awaited in a task"
    before = task.cancelling()
    clock = _clock_of(loop)
    alarm = _Alarm(task, loop.time() + deadline_s)
    clock.alarms.add(alarm)
    if alarm.due < clock.next:
        clock.wait_until(alarm.due, loop)
    try:
        return await call()
    except asyncio.CancelledError as error:
        if task.cancelling() - alarm.rang > before:
            raise
        if alarm.rang:
            raise late() from None
        raise stray() from error
    finally:
        clock.alarms.discard(alarm)
        for _ in range(alarm.rang):
            task.uncancel()


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


class Crew:
    """Tasks of one owner, who is told what they did, and who outlives them.

    Used once, as a block: what still runs when the owner leaves it is cancelled, and has ended
    once it is left. An error that comes out of a task ends the crew and is raised there. It
    costs what its tasks cost: a task group of anyio takes several times that for each.

    Attributes:
        is_cancelled: the crew ends; the owner should leave the block.
    """

    def __init__(self) -> None:
        self.is_cancelled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self.is_cancelled:
            task.cancel()

    def cancel(self) -> None:
        """Cancel all tasks, and tell the owner.

        A task that was answered in this very turn of the loop takes its answer first: what was
        sampled, or failed, is in the books.
        """
        if not self.is_cancelled:
            self.is_cancelled = True
            asyncio.get_running_loop().call_soon(self._cancel_tasks)
            self.tell()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def tell(self) -> None:
        """Wake the owner, if it waits for `news`."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def news(self) -> None:
        """For the owner: until somebody tells something."""
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is GeneratorExit:  # thrown away with its loop: nothing can be awaited any more
            return
        self.cancel()
        cancelled = await self._all_ended()
        if self._error is not None:
            raise self._error
        if cancelled is not None:
            raise cancelled

    async def _all_ended(self) -> asyncio.CancelledError | None:
        """Wait for every task, however often the owner is cancelled meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        left = {task for task in self._tasks if not task.done()}
        if not left:
            return None
        with anyio.CancelScope(shield=True):
            while left:
                try:
                    _, left = await asyncio.wait(left, timeout=_AGAIN_S)
                except asyncio.CancelledError as error:
                    cancelled = error
                else:
                    for task in left:
                        task.cancel()
        return cancelled

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self.cancel()
