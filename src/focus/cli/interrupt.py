"""Ctrl-C and SIGTERM always end the program soon, after its clean-up, and say how to go on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

import typer

from focus.cli.boundary import INTERRUPTED, complain, known_error, say_stopped

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
    import asyncio

    import anyio

    from focus.cli.progress import progress_on

    guard = _CutOff(last_words)

    async def main(progress: WorkProgress) -> T:
        with guard.armed():
            return await work(progress)

    try:
        with progress_on(console) as progress:
            result = anyio.run(main, progress)
    except (KeyboardInterrupt, asyncio.CancelledError, Exception) as end:
        if not (isinstance(end, KeyboardInterrupt) or guard.is_stopping):
            raise
        guard.has_spoken = True
        if isinstance(end, Exception):  # something broke because it was stopped, or just then
            complain(f"while stopping: {known_error(end) or repr(end)}")
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

    @property
    def is_stopping(self) -> bool:
        """A signal came, and the work was told."""
        return self._timer.is_alive()

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Within the block the first signal starts the clock and cancels this task.

        A signal that is ignored, as shells let background jobs ignore Ctrl-C, stays so.
        """
        import asyncio

        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        cancel = task.cancel

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self.is_stopping:
                return
            self.exit_code = 128 + number
            self._timer.start()
            loop.call_soon_threadsafe(cancel)

        heard = [n for n in _SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, on_signal) for number in heard}
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
