"""Ctrl-C and SIGTERM always end the program soon, after its clean-up, and say how to go on."""

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
"""A step of training that runs on this long after a signal is cut off; files stay whole."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_SHOW_CURSOR = b"\x1b[?25h"


def run_until_interrupted(
    work: Callable[[WorkProgress], Awaitable[T]], *, console: Console, last_words: str
) -> T:
    """Run `work` in an event loop; once interrupted print `last_words` and exit.

    The exit code is that of shells: 130 after Ctrl-C, 143 after SIGTERM. Progress is drawn on
    `console`, and taken away before anything else is printed.

    The first of these signals cancels the work, which closes its books and releases what it
    opened; further ones change nothing, so that clean-up is never skipped. What does not
    listen, such as a long optimizer step, is cut off after `PATIENCE_S`; everything FOCUS
    writes is written whole or not at all, so nothing is damaged.
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
        raise typer.Exit(guard.exit_code) from None
    guard.disarm()
    return result


class _CutOff:
    """Ends the process a while after it was interrupted, unless that happened by itself."""

    def __init__(self, last_words: str) -> None:
        self.has_spoken = False
        self.exit_code = INTERRUPTED
        self._last_words = last_words
        self._timer = threading.Timer(PATIENCE_S, self._end)
        self._timer.daemon = True

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Within the block the first signal starts the clock, then does what Ctrl-C did."""
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler) or threading.current_thread() is not threading.main_thread():
            yield
            return
        inner: Callable[[int, FrameType | None], Any] = handler

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._timer.is_alive():
                return
            self.exit_code = 128 + number
            self._timer.start()
            inner(signal.SIGINT, frame)

        before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)

    def disarm(self) -> None:
        """The work was done before a signal could stop it."""
        self._timer.cancel()

    def _end(self) -> None:
        """Straight to the descriptors: the streams may be held by a display that waits as well."""
        if os.isatty(1):
            os.write(1, _SHOW_CURSOR)
        if not self.has_spoken:
            os.write(2, f"\nstopped: {self._last_words}\n".encode())
        os._exit(self.exit_code)
