"""Ctrl-C that always ends the program soon, and says how to go on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from focus.cli.boundary import INTERRUPTED, say_stopped

if TYPE_CHECKING:
    from rich.console import Console

    from focus.cli.progress import WorkProgress

__all__ = ("run_until_interrupted",)

T = TypeVar("T")

PATIENCE_S = 4.0
"""A step of training that runs on this long after Ctrl-C is cut off; files stay whole."""

_SHOW_CURSOR = b"\x1b[?25h"


def run_until_interrupted(
    work: Callable[[WorkProgress], Awaitable[T]], *, console: Console, last_words: str
) -> T:
    """Run `work` in an event loop; after Ctrl-C print `last_words` and exit with 130.

    Its progress is drawn on `console`, and taken away before anything else is printed.

    Ctrl-C cancels the work, which closes its books. What does not listen, such as a long
    optimizer step, is cut off after `PATIENCE_S`; everything FOCUS writes is written whole
    or not at all, so nothing is damaged.
    """
    import anyio

    from focus.cli.progress import progress_on

    guard = _CutOff(last_words)

    async def main(progress: WorkProgress) -> T:
        with guard.armed():
            return await work(progress)

    try:
        with progress_on(console) as progress:
            result = anyio.run(main, progress)
    except KeyboardInterrupt:
        guard.has_spoken = True
        say_stopped(last_words)
        raise typer.Exit(INTERRUPTED) from None
    guard.disarm()
    return result


class _CutOff:
    """Ends the process a while after Ctrl-C, unless that happened by itself."""

    def __init__(self, last_words: str) -> None:
        self.has_spoken = False
        self._last_words = last_words
        self._timer = threading.Timer(PATIENCE_S, self._end)
        self._timer.daemon = True

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Within the block, Ctrl-C starts the clock before it does what it did."""
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler) or threading.current_thread() is not threading.main_thread():
            yield
            return
        inner: Callable[[int, FrameType | None], Any] = handler

        def on_interrupt(number: int, frame: FrameType | None) -> None:
            if not self._timer.is_alive():
                self._timer.start()
            inner(number, frame)

        signal.signal(signal.SIGINT, on_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)

    def disarm(self) -> None:
        """The work was done before Ctrl-C could stop it."""
        self._timer.cancel()

    def _end(self) -> None:
        """Straight to the descriptors: the streams may be held by a display that waits as well."""
        if os.isatty(1):
            os.write(1, _SHOW_CURSOR)
        if not self.has_spoken:
            os.write(2, f"\nstopped: {self._last_words}\n".encode())
        os._exit(INTERRUPTED)
