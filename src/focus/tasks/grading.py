r"""Ask for grades from any event loop or thread.

    outcome = await Grader(workers=2).grade(r"… so \boxed{42}.", "42")

Three things are kept apart:

- a wrong answer, or none (no complete box): 0.0;
- an answer that could not be compared within the limits of time and memory: 0.0, counted
  as *unverifiable*, so that a hostile answer costs its author and not the tree;
- a grader that does not work: :class:`focus.errors.GraderError`, never a number.

Source: docs/concepts/grading.md.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from focus._closing import Closing
from focus.errors import ConfigError, GraderError, ProblemError
from focus.tasks.answers import Verdict, last_box, reference_text, tail
from focus.tasks.memory import Memory
from focus.tasks.pool import Ticket, WorkerPool
from focus.tasks.scoring import KINDS, ExactScorer

__all__ = ("Grader", "GraderCounts", "check_reference", "shared_grader")

_LOG = logging.getLogger("focus.tasks")
_ENOUGH = 64
_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class GraderCounts:
    """What a grader has done so far.

    Attributes:
        graded: verdicts given.
        right: of them, those with a score above 0.
        unverifiable: of them, zeros that stand for "could not be compared".
        started: worker processes started; more than `workers` means replacements.
    """

    graded: int = 0
    right: int = 0
    unverifiable: int = 0
    started: int = 0

    @property
    def looks_broken(self) -> bool:
        """At least 64 answers and not one right: more often a format fault than a policy.

        A grader that comes to look so logs a warning, once.

        >>> GraderCounts(graded=64).looks_broken, GraderCounts(graded=64, right=1).looks_broken
        (True, False)
        """
        return self.graded >= _ENOUGH and self.right == 0


class Grader(Closing):
    """Grades answers in killable processes.

    May be built before any event loop and used from several, one after another or at the
    same time, and from threads. Workers start on first use, check themselves there with
    known pairs, and end with `aclose`, with the interpreter, or when this process dies.
    A cancelled grade kills the worker that served it. The last 65,536 verdicts are
    remembered by reference and answer, so that a tree's equal answers cost one comparison.

    Args:
        workers: most processes at a time.
        deadline_s: most time for one answer; the verdict comes at most 1 s later.
        memory_mb: address space of a worker, imported packages included.

    Raises:
        ConfigError: a limit is not positive.
    """

    def __init__(self, *, workers: int = 1, deadline_s: float = 5.0, memory_mb: int = 1024) -> None:
        if workers < 1 or memory_mb < 1 or not (math.isfinite(deadline_s) and deadline_s > 0):
            raise ConfigError(
                "a grader needs workers >= 1, memory_mb >= 1 and a finite deadline_s > 0, got "
                f"workers={workers}, memory_mb={memory_mb}, deadline_s={deadline_s}"
            )
        self._workers = workers
        self._pool = WorkerPool(workers=workers, deadline_s=deadline_s, memory_mb=memory_mb)
        self._limiters: RunVar[anyio.CapacityLimiter] = RunVar("focus.tasks.Grader")
        self._lock = threading.Lock()
        self._counts = GraderCounts()
        self._verdicts: Memory[tuple[str, str, str], Verdict] = Memory(most=_REMEMBERED)
        self._usable: Memory[tuple[str, str], bool] = Memory(most=_REMEMBERED)

    @property
    def counts(self) -> GraderCounts:
        """Totals so far."""
        done = self._counts
        return GraderCounts(done.graded, done.right, done.unverifiable, self._pool.started)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers now alive."""
        return self._pool.pids

    async def grade(self, text: str, reference: Any, kind: str = "math") -> float:
        """The outcome of `text` in [0, 1]; see :meth:`verdict`."""
        return (await self.verdict(text, reference, kind=kind)).score

    async def verdict(self, text: str, reference: Any, *, kind: str = "math") -> Verdict:
        """Grade the answer in `text`; its last 65,536 characters count.

        Args:
            text: the whole reply so far.
            reference: what to compare with, in the form of `kind`.
            kind: ``"math"``, ``"exact"`` (graded here, at once) or ``"reasoning_gym"``.

        Raises:
            ConfigError: no such kind.
            GraderError: the grader does not work; the outcome is unknown.
            LifecycleError: the grader is closed.
            ProblemError: the reference is empty or of another form.
        """
        _ensure_known(kind)
        if kind == "exact":
            return self._counted(ExactScorer().score(tail(text), reference))
        key = _memory_key(kind, tail(text), reference)
        known = None if key is None else self._verdicts.get(key)
        if known is not None:
            return self._counted(known)
        reply = await self._ask(
            {"op": "score", "kind": kind, "text": tail(text), "reference": reference}
        )
        verdict = _verdict(reply)
        if key is not None and not verdict.unverifiable:
            self._verdicts.put(key, verdict)
        return self._counted(verdict)

    async def check(self, reference: Any, *, kind: str = "math") -> None:
        """Refuse a reference that no answer can match.

        Raises:
            ProblemError: it is empty, ambiguous, or cannot be read within the limits.
            GraderError: the grader does not work.
        """
        _ensure_known(kind)
        if kind == "exact":
            ExactScorer().check(reference)
        elif self._usable.get((kind, repr(reference))) is None:
            _ensure_usable(await self._ask(_check_request(reference, kind)))
            self._usable.put((kind, repr(reference)), True)

    def check_now(self, reference: Any, *, kind: str = "math") -> None:
        """`check` for scripts: blocks the calling thread."""
        _ensure_known(kind)
        if kind == "exact":
            ExactScorer().check(reference)
        else:
            _ensure_usable(self._pool.ask(_check_request(reference, kind), Ticket()))

    async def aclose(self) -> None:
        """Kill the workers; grades still waited for raise. Idempotent."""
        self._verdicts.clear()
        self._usable.clear()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._pool.close)

    async def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        ticket = Ticket()
        try:
            return await anyio.to_thread.run_sync(
                self._pool.ask, request, ticket, abandon_on_cancel=True, limiter=self._limiter()
            )
        finally:
            ticket.abandon()

    def _limiter(self) -> anyio.CapacityLimiter:
        """This event loop's own queue; the workers are shared by all loops."""
        limiter = self._limiters.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._workers)
            self._limiters.set(limiter)
        return limiter

    def _counted(self, verdict: Verdict) -> Verdict:
        with self._lock:
            done = self._counts
            now = self._counts = GraderCounts(
                done.graded + 1,
                done.right + (verdict.score > 0),
                done.unverifiable + verdict.unverifiable,
            )
        if now.looks_broken and now.graded == _ENOUGH:
            _LOG.warning(
                "not one of the first %d answers is right; if the policy is better than that, "
                "its answers have another form than the prompt asks for",
                now.graded,
            )
        return verdict


def check_reference(label: object, *, kind: str = "math") -> str:
    """The answer that a label holds, if an answer can match it. Blocks; for scripts.

    Raises:
        ProblemError: it is empty, cannot be read, or holds several answers outside one box.
        GraderError: the grader does not work.
    """
    shared_grader().check_now(label, kind=kind)
    return reference_text(label)


def shared_grader() -> Grader:
    """The grader of this process: one for every environment that names none."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Grader(workers=max(1, min(4, (os.cpu_count() or 1) // 2)))
        return _shared


_shared: Grader | None = None
_shared_lock = threading.Lock()


def _ensure_known(kind: str) -> None:
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of grading {kind!r}; known: {', '.join(KINDS)}")


def _memory_key(kind: str, text: str, reference: Any) -> tuple[str, str, str] | None:
    """What the verdict depends on, where that is known: the last box and the reference."""
    answer = last_box(text) if kind == "math" else None
    return None if answer is None else (kind, repr(reference), answer)


def _check_request(reference: Any, kind: str) -> dict[str, Any]:
    return {"op": "check", "kind": kind, "reference": reference}


def _ensure_usable(reply: Mapping[str, Any]) -> None:
    """Raise what a reply to `check` or `score` says against the reference or the grader."""
    if "error" in reply:
        raise GraderError(reply["error"])
    if "refused" in reply:
        raise ProblemError(reply["refused"])


def _verdict(reply: Mapping[str, Any]) -> Verdict:
    _ensure_usable(reply)
    return Verdict(float(reply["score"]), bool(reply["unverifiable"]), str(reply["reason"]))
