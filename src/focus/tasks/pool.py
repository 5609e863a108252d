"""A bounded pool of grader processes, shared by threads and event loops."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from focus.errors import GraderError, LifecycleError
from focus.tasks.worker import GraderWorker

__all__ = ("Ticket", "WorkerPool")

_STARTUP_S = 60.0
_GRACE_S = 1.0
_TRIES = 2


class Ticket:
    """One asker's claim on a worker; abandoning it ends the work at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: GraderWorker | None = None
        self._is_abandoned = False

    def hold(self, worker: GraderWorker) -> None:
        """Name the worker that serves this claim.

        Raises:
            LifecycleError: nobody waits for the answer any more.
        """
        with self._lock:
            self._ensure_wanted()
            self._worker = worker

    def drop(self) -> None:
        """The worker is free again."""
        with self._lock:
            self._worker = None

    def abandon(self) -> None:
        """Nobody waits any more: kill the worker that still serves this claim, if any."""
        with self._lock:
            self._is_abandoned = True
            if self._worker is not None:
                self._worker.kill()

    def ensure_wanted(self) -> None:
        """Raise if nobody waits any more."""
        with self._lock:
            self._ensure_wanted()

    def _ensure_wanted(self) -> None:
        if self._is_abandoned:
            raise LifecycleError("the caller was cancelled")


class WorkerPool:
    """At most `workers` grader processes, started on first use, replaced when they fail.

    `ask` blocks its thread: for a free worker, then at most `deadline_s` + 1 s per try (and
    up to a minute while a fresh process imports its packages).
    """

    def __init__(self, *, workers: int, deadline_s: float, memory_mb: int) -> None:
        self._workers = workers
        self._deadline_s = deadline_s
        self._memory_mb = memory_mb
        self._is_closed = False
        self._begin()

    @property
    def started(self) -> int:
        """Processes started so far; more than the pool's size means replacements."""
        return self._started

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers now alive."""
        return tuple(sorted(worker.pid for worker in tuple(self._live)))

    def ask(self, request: Mapping[str, Any], ticket: Ticket) -> dict[str, Any]:
        """Have a worker answer; a process that dies over it is replaced once.

        Raises:
            GraderError: no worker starts, or it dies twice, or stays silent.
            LifecycleError: the pool is closed, or the ticket abandoned.
        """
        if self._owner != os.getpid():
            self._begin()
        cause = ""
        with self._slots:
            for _ in range(_TRIES):
                try:
                    reply = self._once(request, ticket)
                except EOFError as error:
                    self._ensure_open()
                    ticket.ensure_wanted()
                    cause = f"the grader process ended: {error}"
                except TimeoutError as error:
                    raise GraderError(f"the grader process is stuck: {error}") from error
                else:
                    if "crashed" not in reply:
                        return reply
                    cause = reply["crashed"]
        raise GraderError(f"grading failed {_TRIES} times in a row; last: {cause}")

    def close(self) -> None:
        """Kill every process and wait for its askers to notice; idempotent."""
        if self._owner != os.getpid():
            self._begin()
        with self._lock:
            self._is_closed = True
        for worker in tuple(self._live):
            worker.kill()
        for _ in range(self._workers):
            self._slots.acquire()
        _close_all(self._live, self._owner)
        self._live.clear()
        self._slots.release(self._workers)

    def _begin(self) -> None:
        """Start empty; also in a forked child, which must not touch its parent's pipes."""
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(self._workers)
        self._idle: list[GraderWorker] = []
        self._live: set[GraderWorker] = set()
        self._started = 0
        weakref.finalize(self, _close_all, self._live, self._owner)

    def _once(self, request: Mapping[str, Any], ticket: Ticket) -> dict[str, Any]:
        ticket.ensure_wanted()
        worker = self._take()
        is_usable = False
        try:
            ticket.hold(worker)
            self._load(worker, request["kind"])
            reply = worker.ask(
                {**request, "limit_s": self._deadline_s}, timeout_s=self._deadline_s + _GRACE_S
            )
            is_usable = True
            return reply
        finally:
            ticket.drop()
            if is_usable:
                self._idle.append(worker)
            else:
                worker.close()
                self._live.discard(worker)

    def _take(self) -> GraderWorker:
        with self._lock:  # a worker either sees the pool closed, or is seen by `close`
            self._ensure_open()
            if self._idle:
                return self._idle.pop()
            worker = GraderWorker(memory_mb=self._memory_mb)
            self._live.add(worker)
            self._started += 1
            return worker

    def _load(self, worker: GraderWorker, kind: str) -> None:
        if kind in worker.loaded:
            return
        reply = worker.ask({"op": "load", "kind": kind}, timeout_s=_STARTUP_S)
        if "error" in reply:
            raise GraderError(
                f"grading of kind {kind!r} does not work here: {reply['error']} "
                f"(memory cap {self._memory_mb} MB)"
            )
        worker.loaded.add(kind)

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise LifecycleError("the grader is closed")


def _close_all(workers: Iterable[GraderWorker], owner: int) -> None:
    if owner != os.getpid():
        return
    for worker in tuple(workers):
        worker.close()
