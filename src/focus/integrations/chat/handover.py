"""Two threads that take turns: a program that asks a model, and whoever answers for the model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from focus.errors import EnvError, LifecycleError

__all__ = ("Asked", "Ended", "Handover", "ProgramStopped")


class ProgramStopped(BaseException):
    """Raised inside a program that is not wanted any more; not an Exception, so that a
    program's own handlers let it pass."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The program waits for a reply to this request."""

    body: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """The program returned."""

    result: Any


class Handover:
    """Runs a program in a thread of its own, from one request to the next.

    `begin`, `answer` and `stop` belong to the answering side, one call at a time; `ask` to
    the program's side, from any thread of it.

    Args:
        program: what is run.
        patience_s: most seconds from a reply to the next request or the end.
    """

    def __init__(self, program: Callable[[], Any], *, patience_s: float) -> None:
        self._program = program
        self._patience_s = patience_s
        self._events: queue.SimpleQueue[Asked | Ended | BaseException] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="focus-chat-program", daemon=True)

    def begin(self) -> Asked | Ended:
        """Start the program.

        Raises:
            EnvError: it raised, or is silent for too long.
        """
        self._thread.start()
        return self._next()

    def answer(self, reply: Any) -> Asked | Ended:
        """Give it the reply that it waits for.

        Raises:
            EnvError: it raised, or is silent for too long.
        """
        self._replies.put(reply)
        return self._next()

    def stop(self) -> None:
        """End the program where it waits.

        Raises:
            EnvError: it goes on nevertheless.
        """
        self._is_stopped = True
        self._replies.put(ProgramStopped())
        if self._thread.ident is not None:
            self._thread.join(self._patience_s)
            if self._thread.is_alive():
                raise EnvError(
                    f"the program was told to stop and still runs after {self._patience_s:g} s"
                )

    def ask(self, body: Any) -> Any:
        """The reply to a request of the program.

        Raises:
            LifecycleError: another request of it waits.
            ProgramStopped: nobody will answer any more.
        """
        if not self._asking.acquire(blocking=False):
            raise LifecycleError("one program holds one conversation: a request of it still waits")
        try:
            if self._is_stopped:
                raise ProgramStopped
            self._events.put(Asked(body))
            reply = self._replies.get()
            if isinstance(reply, BaseException):
                raise reply
            return reply
        finally:
            self._asking.release()

    def _run(self) -> None:
        try:
            self._events.put(Ended(self._program()))
        except BaseException as error:  # whatever it is, the other side waits for it
            self._events.put(error)

    def _next(self) -> Asked | Ended:
        try:
            event = self._events.get(timeout=self._patience_s)
        except queue.Empty:
            raise EnvError(
                f"the program neither asked its model nor ended within {self._patience_s:g} s"
            ) from None
        if isinstance(event, BaseException):
            raise EnvError(f"the program raised {event!r}") from event
        return event
