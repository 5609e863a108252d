"""Threads for blocking episodes, and resources that no cancellation loses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from focus._cancellation import to_its_end
from focus.errors import ConfigError

__all__ = ("Threads", "made_whole")

T = TypeVar("T")


class Threads:
    """Runs blocking calls off the event loop, at most `most` at once.

    Serves any number of event loops, one after the other.

    Raises:
        ConfigError: `most` is below 1.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ConfigError(f"threads must be >= 1, got {most}")
        self._most = most
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar("episodes")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`; a cancellation waits for its end."""
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._most)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(work, limiter=limiter)


async def made_whole(make: Coroutine[Any, Any, T], *, drop: Callable[[T], Awaitable[None]]) -> T:
    """Make something to its end; if the caller was cancelled meanwhile, drop it again.

    For what must be let go: a result that nobody receives would be lost.
    """
    made: list[T] = []

    async def work() -> None:
        made.append(await make)

    async def undo() -> None:
        for each in made:
            await drop(each)

    try:
        await to_its_end(work())
    except BaseException:
        await to_its_end(undo())
        raise
    return made[0]
