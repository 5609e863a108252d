"""A fork or a step that is cancelled in its middle: everything else must stay as it was."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel

from focus._cancellation import siblings
from focus.agent.env import Env, fork_state, release_states

__all__ = ("Moment", "cancelled", "moments")


@dataclass(frozen=True, slots=True)
class Moment:
    """When to cancel: after so many passes of the event loop, then so many seconds."""

    passes: int = 0
    after_s: float = 0.0

    async def wait(self) -> None:
        """Return at that moment."""
        for _ in range(self.passes):
            await anyio.lowlevel.checkpoint()
        if self.after_s:
            await anyio.sleep(self.after_s)

    def __str__(self) -> str:
        return f"{1000 * self.after_s:.2f} ms" if self.after_s else f"{self.passes} passes"


async def moments(env: Env, state: Any, *, count: int) -> list[Moment]:
    """Half of them pass by pass from the start, half spread over the time a fork takes."""
    began = time.perf_counter()
    fork = await fork_state(env, state)
    took_s = time.perf_counter() - began
    if fork is not state:
        await release_states(env, [fork])
    half = count // 2
    return [*_passes(half), *(Moment(after_s=took_s * k / half) for k in range(1, half + 1))]


def _passes(count: int) -> Iterator[Moment]:
    return (Moment(passes=number) for number in range(count))


async def cancelled(call: Callable[[], Awaitable[Any]], moment: Moment) -> list[Any]:
    """Begin `call` and cancel it at `moment`; its result, if it was faster."""
    results: list[Any] = []

    async def work() -> None:
        results.append(await call())

    async with siblings() as group:
        group.start_soon(work)
        await moment.wait()
        group.cancel_scope.cancel()
    return results
