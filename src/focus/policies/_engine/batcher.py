"""The worker thread that owns a model and steps one running batch."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from focus.errors import Aborted, CorruptReply, FatalError, LifecycleError, RequestError
from focus.policies._engine.prefix_cache import PrefixCache
from focus.policies._engine.requests import Counters, Request
from focus.policies._engine.runner import Runner
from focus.policies._engine.sampler import Draw, draw
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("Batcher",)

_PREFILL_TOKENS = 8192
_WORTH_SHARING = 8


class Batcher:
    """Continuous batching: requests join and leave between steps.

    The last id of a reply that its length ended is fed once more, behind the reply's back: the
    cache then holds what the model gave after it, and a continuation starts without a pass of
    its own, however many siblings it has.

    Row i of the batch lives in slot i, so the rows of a pass are always one slice. The
    condition guards the queue, the set of open requests and the counters; rows, slots and
    prefix cache belong to the worker alone.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        version: str,
        max_batch: int,
        cache: PrefixCache,
        threads: int | None,
    ) -> None:
        self.version = version
        self._runner = runner
        self._cache = cache
        self._max_batch = max_batch
        self._threads = threads
        self._rows: list[Request] = []
        self._waiting: deque[Request] = deque()
        self._open: set[Request] = set()
        self._counts: Counter[str] = Counter()
        self._condition = threading.Condition()
        self._worker: threading.Thread | None = None
        self._is_closed = False

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests; their futures are set by the worker.

        Raises:
            LifecycleError: the policy is closed.
        """
        with self._condition:
            if self._is_closed:
                raise LifecycleError("this TransformersPolicy is closed")
            for request in requests:
                request.version = self.version
            self._open.update(requests)
            self._waiting.extend(requests)
            if self._worker is None:
                self._worker = threading.Thread(
                    target=self._serve, name="focus-transformers", daemon=True
                )
                self._worker.start()
            self._condition.notify_all()

    def close(self) -> None:
        """Stop the worker; what still runs is aborted. Safe to call twice."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
            worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join()

    @contextmanager
    def changing_to(self, version: str) -> Iterator[None]:
        """Hold the model still while its weights change; the prefix cache is dropped.

        Requests submitted after the block run, and report, the new version.

        Raises:
            LifecycleError: requests are running.
        """
        with self._condition:
            running = [request for request in self._open if not request.future.done()]
            if running:
                raise LifecycleError(
                    f"weights cannot change while {len(running)} requests are running"
                )
            self._condition.wait_for(lambda: not self._open)
            self._cache.clear()
            yield
            self.version = version

    @property
    def counters(self) -> Counters:
        """Totals so far."""
        with self._condition:
            return Counters(**self._counts, evicted_tokens=self._cache.evicted_tokens)

    @torch.inference_mode()
    def _serve(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        while self._wait_for_work():
            try:
                self._drop_cancelled()
                self._decode()
                self._admit()
            except Exception as error:  # every caller must hear of it, and the next may succeed
                self._fail_all(error)
        self._fail_all(None)

    def _wait_for_work(self) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or self._waiting or self._rows)
            return not self._is_closed

    def _drop_cancelled(self) -> None:
        for slot in reversed(range(len(self._rows))):
            request = self._rows[slot]
            if request.future.cancelled() and not request.is_settled:
                self._settle(request, None)
                self._leave(slot)

    def _admit(self) -> None:
        while wave := self._next_wave():
            known = [request for request in wave if request.logits is not None]
            for group in _groups([request for request in wave if request.logits is None]):
                self._prefill(group)
            if known:
                self._resume(known)

    def _next_wave(self) -> list[Request]:
        """Waiting requests to prefill together.

        One whose next uncached ids equal those of an earlier one waits for the next wave:
        by then they are in the prefix cache, and so are the logits of equal prefixes. One
        that continues a row which has yet to be kept waits for the step that keeps it.
        """
        unkept = [row.prefix + tuple(row.ids) for row in self._rows if row.finish is not None]
        wave: list[Request] = []
        deferred: list[Request] = []
        shared: set[TokenIds] = set()
        with self._condition:
            while self._waiting and len(self._rows) + len(wave) < self._max_batch:
                request = self._waiting.popleft()
                if request.future.cancelled():
                    self._settle(request, None)
                    continue
                if any(request.prefix[: len(ids)] == ids for ids in unkept):
                    deferred.append(request)
                    continue
                request.take(self._cache.match(request.prefix))
                ahead = request.prefix[: request.cached + _WORTH_SHARING]
                if request.logits is not None:
                    wave.append(request)
                elif ahead in shared and self._cache.holds(len(request.prefix)):
                    deferred.append(request)
                else:
                    shared.add(ahead)
                    wave.append(request)
            self._waiting.extendleft(reversed(deferred))
        return wave

    def _prefill(self, group: Sequence[Request]) -> None:
        """Compute what is not cached of some prefixes, and draw their first ids."""
        first, slots = self._enter(group), self._runner.slots
        logits = self._feed(first)
        self._count(passes=1)
        for slot, request in enumerate(group, start=first):
            self._cache.insert(
                request.prefix, partial(slots.read, slot), logits=logits[slot - first].clone()
            )
        self._sample(first, logits)

    def _resume(self, group: Sequence[Request]) -> None:
        """Draw the first ids behind prefixes of which everything is cached."""
        logits = torch.stack([request.logits for request in group if request.logits is not None])
        for request in group:
            request.logits = None
        self._sample(self._enter(group), logits)

    def _enter(self, group: Sequence[Request]) -> int:
        """Give requests a slot each, with their cached keys and values; the first slot."""
        first, slots = len(self._rows), self._runner.slots
        slots.reserve(first + len(group), max(len(request.prefix) for request in group))
        for slot, request in enumerate(group, start=first):
            for piece in request.pieces:
                slots.write(slot, request.fed, piece)
                request.fed += piece.shape[3]
            request.pieces = []
        self._rows.extend(group)
        self._count(
            prefill_tokens=sum(len(request.prefix) - request.cached for request in group),
            cached_tokens=sum(request.cached for request in group),
        )
        return first

    def _decode(self) -> None:
        if self._rows:
            logits = self._feed(0)
            self._count(passes=1)
            self._sample(0, logits)

    def _feed(self, first: int) -> torch.Tensor:
        rows = self._rows[first:]
        suffixes = [request.suffix() for request in rows]
        logits = self._runner.run(first, suffixes, [request.fed for request in rows])
        for request, suffix in zip(rows, suffixes, strict=True):
            request.fed += len(suffix)
        return logits

    def _sample(self, first: int, logits: torch.Tensor) -> None:
        rows = self._rows[first:]
        running = [row for row, request in enumerate(rows) if request.finish is None]
        draws = self._drawn(rows, running, logits) if running else {}
        self._count(generated_tokens=len(running))
        for row in reversed(range(len(rows))):
            drawn = draws.get(row)
            if drawn is None:
                self._keep(first + row, logits[row].clone())
            else:
                self._accept(first + row, drawn)

    def _drawn(
        self, rows: Sequence[Request], running: Sequence[int], logits: torch.Tensor
    ) -> dict[int, Draw]:
        laws = [rows[row].law for row in running]
        uniforms = [rows[row].uniforms.random() for row in running]
        asked = logits if len(running) == len(rows) else logits[running]
        return dict(zip(running, draw(asked, laws, uniforms), strict=True))

    def _accept(self, slot: int, drawn: Draw) -> None:
        """Append a drawn id; a finished reply goes out at once."""
        request = self._rows[slot]
        if not math.isfinite(drawn.log_prob):
            self._settle(request, CorruptReply("the model gave logits that are not finite"))
            self._leave(slot)
            return
        request.accept(drawn)
        if request.finish is None:
            return
        self._settle(request, request.reply())
        if request.finish is FinishReason.STOP or not self._cache.holds(len(request.fed_ids) + 1):
            self._keep(slot, None)

    def _keep(self, slot: int, logits: torch.Tensor | None) -> None:
        """Move a finished row's keys and values to the cache."""
        request = self._rows[slot]
        self._cache.insert(request.fed_ids, partial(self._runner.slots.read, slot), logits=logits)
        self._leave(slot)
        with self._condition:
            self._open.discard(request)
            self._condition.notify_all()

    def _leave(self, slot: int) -> None:
        last = self._rows.pop()
        if slot < len(self._rows):
            self._runner.slots.move(len(self._rows), slot, last.fed)
            self._rows[slot] = last

    def _settle(self, request: Request, result: Generation | RequestError | None) -> None:
        """Give the caller its result; `None` when it has gone away."""
        request.is_settled = True
        wanted = request.future.set_running_or_notify_cancel()
        with self._condition:
            if not isinstance(result, Generation):
                self._open.discard(request)
            self._counts["requests" if wanted else "cancelled"] += 1
            self._condition.notify_all()
        if not wanted:
            return
        if isinstance(result, Generation):
            request.future.set_result(result)
        else:
            request.future.set_exception(result)

    def _fail_all(self, error: Exception | None) -> None:
        with self._condition:
            requests = [request for request in self._open if not request.is_settled]
            self._open.clear()
            self._waiting.clear()
        self._rows.clear()
        self._cache.clear()
        for request in requests:
            self._settle(request, _failure(error))

    def _count(self, **more: int) -> None:
        with self._condition:
            self._counts.update(more)


def _groups(wave: list[Request]) -> Iterator[list[Request]]:
    """Requests of similar length, few enough for one forward pass."""
    group: list[Request] = []
    for request in sorted(wave, key=lambda request: len(request.suffix())):
        if group and (len(group) + 1) * len(request.suffix()) > _PREFILL_TOKENS:
            yield group
            group = []
        group.append(request)
    if group:
        yield group


def _failure(error: Exception | None) -> RequestError:
    if error is None:
        return Aborted("the TransformersPolicy was closed while this request ran")
    failure = FatalError(f"the model failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
