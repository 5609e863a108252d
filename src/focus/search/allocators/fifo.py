"""Oldest first."""

from __future__ import annotations

from dataclasses import dataclass

from focus.search.allocators.base import Allocator, Session, View
from focus.tree import NodeId

__all__ = ("Fifo",)


@dataclass(frozen=True)
class Fifo(Allocator):
    """Buys the checkpoint that has been open longest.

    A phase begins with all checkpoints in id order. One whose gate closes leaves the
    queue; when the gate opens again it joins at the back, behind the checkpoints that
    its purchase attached.
    """

    def session(self, view: View) -> Session:
        return _Queue()


class _Queue(Session):
    def __init__(self) -> None:
        self._arrivals: dict[NodeId, int] = {}
        self._next = 0

    def entered(self, node_id: NodeId) -> None:
        self._arrivals[node_id] = self._next
        self._next += 1

    def score(self, node_id: NodeId) -> float:
        return -float(self._arrivals[node_id])
