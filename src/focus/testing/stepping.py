"""Run a coroutine tick by tick, and cancel it at any of them.

A tick is one pass of the event loop over its ready callbacks. Without sockets and clocks
the k-th tick of two runs is the same moment, so every await point can be met by construction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio

from focus.errors import LifecycleError

__all__ = ("CANCELS", "Cancel", "Stepper")

_MOST_TICKS = 50_000


class Stepper:
    """One run on an event loop of its own.

    Attributes:
        task: the run.
        complaints: what the loop's exception handler was told.
    """

    def __init__(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.loop = asyncio.new_event_loop()
        self.complaints: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(str(context)))
        self.scope: anyio.CancelScope | None = None
        self.ticks = 0

        async def main() -> None:
            with anyio.CancelScope() as self.scope:
                await job()

        self.task = self.loop.create_task(main())

    def tick(self) -> None:
        """One pass over the ready callbacks.

        Raises:
            LifecycleError: so many passes that the run must hang.
        """
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        self.ticks += 1
        if self.ticks > _MOST_TICKS:
            raise LifecycleError(f"still running after {self.ticks} ticks")

    def run(self) -> Iterator[int]:
        """Tick until the run has ended."""
        while not self.task.done():
            self.tick()
            yield self.ticks

    def run_cancelled(self, moment: int, cancel: Cancel) -> BaseException | None:
        """Run to the end, cancelled from tick `moment` on; what came out, unless that was it."""
        for tick in self.run():
            if tick >= moment and not self.task.done():
                cancel(self, tick - moment)
        return None if self.task.cancelled() else self.task.exception()

    def leftovers(self) -> list[str]:
        """Tasks that are still there, and complaints."""
        return [repr(task) for task in asyncio.all_tasks(self.loop)] + self.complaints

    def close(self) -> None:
        """Close the loop; nothing of the run may follow."""
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


Cancel = Callable[[Stepper, int], None]
"""Given the stepper and the ticks since the chosen moment."""


def _once(stepper: Stepper, since: int) -> None:
    if since == 0:
        stepper.task.cancel()


def _three_times(stepper: Stepper, since: int) -> None:
    if since in (0, 1, 3):
        stepper.task.cancel()


def _during_clean_up(stepper: Stepper, since: int) -> None:
    if since < 50:
        stepper.task.cancel()


def _by_scope(stepper: Stepper, since: int) -> None:
    if since == 0 and stepper.scope is not None:
        stepper.loop.call_soon(stepper.scope.cancel)


CANCELS: dict[str, Cancel] = {
    "once": _once,
    "three times": _three_times,
    "during clean-up": _during_clean_up,
    "by scope": _by_scope,
}
"""Ways to cancel."""
