"""The checkpoints that may be bought now, ranked without ever being scanned."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from focus.search.allocators.base import INELIGIBLE, Session
from focus.tree import NodeId

__all__ = ("Choice", "Frontier")


@dataclass(frozen=True, slots=True)
class Choice:
    """The checkpoint to buy next.

    Attributes:
        node: its id.
        score: what the session gave it.
        rivals: other checkpoints that were eligible and affordable.
    """

    node: NodeId
    score: float
    rivals: int


class Frontier:
    """Heaps of eligible checkpoints, one per cost band, with lazy invalidation.

    A score that changed is pushed again; an entry that no longer tells a node's present
    score is dropped when it reaches the top. So `refresh` costs O(log n) per node that
    may have changed and `best` O(bands), amortised, whatever the size of the tree.
    Bands keep affordability, which depends on the band alone, out of the ordering.

    Args:
        session: scores the checkpoints.
        is_open: forkable, and admitted by the gate.
        band_of: cost band of a forkable checkpoint.
    """

    def __init__(
        self,
        session: Session,
        *,
        is_open: Callable[[NodeId], bool],
        band_of: Callable[[NodeId], int],
    ) -> None:
        self._session = session
        self._is_open = is_open
        self._band_of = band_of
        self._open: set[NodeId] = set()
        self._scores: dict[NodeId, float] = {}
        self._heaps: dict[int, list[tuple[float, NodeId]]] = {}
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        """Eligible checkpoints, affordable or not."""
        return len(self._scores)

    def refresh(self, node_ids: Iterable[NodeId]) -> None:
        """Look again at checkpoints whose gate or score may have changed, in this order."""
        for node_id in node_ids:
            if self._is_open(node_id):
                if node_id not in self._open:
                    self._open.add(node_id)
                    self._session.entered(node_id)
                self._set(node_id, self._session.score(node_id))
            else:
                self._open.discard(node_id)
                self._drop(node_id)

    def best(self, *, affords: Callable[[int], bool]) -> Choice | None:
        """Highest score among the bands that `affords` admits; ties go to the lowest id."""
        bands = [band for band, size in self._sizes.items() if size and affords(band)]
        if not bands:
            return None
        lowest, node_id = min(self._top(band) for band in bands)
        return Choice(node_id, -lowest, sum(self._sizes[band] for band in bands) - 1)

    def again(self, node_id: NodeId, *, affords: Callable[[int], bool]) -> Choice | None:
        """The same checkpoint once more, if it is still eligible and affordable."""
        score = self._scores.get(node_id)
        if score is None or not affords(self._band_of(node_id)):
            return None
        rivals = sum(size for band, size in self._sizes.items() if size and affords(band)) - 1
        return Choice(node_id, score, rivals)

    def _set(self, node_id: NodeId, score: float) -> None:
        if not score > INELIGIBLE:
            self._drop(node_id)
        elif self._scores.get(node_id) != score:
            band = self._band_of(node_id)
            if node_id not in self._scores:
                self._sizes[band] = self._sizes.get(band, 0) + 1
            self._scores[node_id] = score
            heapq.heappush(self._heaps.setdefault(band, []), (-score, node_id))

    def _drop(self, node_id: NodeId) -> None:
        if self._scores.pop(node_id, None) is not None:
            self._sizes[self._band_of(node_id)] -= 1

    def _top(self, band: int) -> tuple[float, NodeId]:
        heap = self._heaps[band]
        while self._scores.get(heap[0][1]) != -heap[0][0]:
            heapq.heappop(heap)
        return heap[0]
