"""Coalesce concurrent predictions: whoever waits while a batch runs joins the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

import anyio

__all__ = ("Coalescer",)

K = TypeVar("K", bound=Hashable)


class _Entry(Generic[K]):
    __slots__ = ("error", "items", "values")

    def __init__(self, items: Sequence[K]) -> None:
        self.items = items
        self.values: list[float] | None = None
        self.error: Exception | None = None


class Coalescer(Generic[K]):
    """Turns concurrent calls into batches without a timer or a task of its own.

    The first caller runs its batch; callers that arrive meanwhile wait, and one of them
    runs what gathered. Equal items within a batch are predicted once, at most `most` of
    them per call of `predict`. An error reaches exactly the callers whose items were in
    the failing batch; a cancelled runner hands its batch to the next caller. May serve
    several event loops one after another, not two at a time.
    """

    def __init__(
        self, predict: Callable[[Sequence[K]], Awaitable[Sequence[float]]], *, most: int
    ) -> None:
        self._predict = predict
        self._most = most
        self._waiting: deque[_Entry[K]] = deque()
        self._turn: anyio.Event | None = None

    async def __call__(self, items: Sequence[K]) -> list[float]:
        """Predictions for `items`, in order."""
        entry = _Entry(items)
        self._waiting.append(entry)
        try:
            while entry.values is None and entry.error is None:
                if self._turn is not None:
                    await self._turn.wait()
                else:
                    await self._run()
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        if entry.error is not None:
            raise entry.error
        assert entry.values is not None
        return entry.values

    async def _run(self) -> None:
        batch = self._gather()
        self._turn = anyio.Event()
        try:
            unique = list(dict.fromkeys(item for entry in batch for item in entry.items))
            known: dict[K, float] = {}
            for first in range(0, len(unique), self._most):
                part = unique[first : first + self._most]
                known.update(zip(part, await self._predict(part), strict=True))
            for entry in batch:
                entry.values = [known[item] for item in entry.items]
        except Exception as error:
            for entry in batch:
                entry.error = error
        except BaseException:
            self._waiting.extendleft(reversed(batch))
            raise
        finally:
            turn, self._turn = self._turn, None
            turn.set()

    def _gather(self) -> list[_Entry[K]]:
        batch = [self._waiting.popleft()]
        size = len(batch[0].items)
        while self._waiting and size + len(self._waiting[0].items) <= self._most:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].items)
        return batch
