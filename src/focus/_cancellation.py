"""Tell the cancellation of this task from one that happened inside foreign code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ("stray_cancellation",)


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
