"""Manners of concurrent work: who is cancelled, what is finished all the same, who fails first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

__all__ = ("siblings", "stray_cancellation", "to_its_end")

T = TypeVar("T")


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
