"""What an allocator is given, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from focus.tree import Evidence, NodeId, Tree, TreeHeader

__all__ = ("Allocator", "Session", "View")

INELIGIBLE = float("-inf")
"""Score of a checkpoint that must not be bought now."""


@dataclass(frozen=True)
class View:
    """What a session may read; the scheduler keeps it up to date.

    Attributes:
        tree: the checkpoints.
        evidence: returns of the finished rollouts.
        pending: purchases in flight, by checkpoint; 0 for absent ones.
    """

    tree: Tree[Any]
    evidence: Evidence
    pending: Mapping[NodeId, int]

    def pending_at(self, node_id: NodeId) -> int:
        return self.pending.get(node_id, 0)

    def branches_at(self, node_id: NodeId) -> int:
        """Branches below a checkpoint, those in flight included."""
        return len(self.tree.children(node_id)) + self.pending_at(node_id)


class Session(Protocol):
    """One phase's ranking of checkpoints.

    The caller keeps scores in a heap, so a score may change only where `settled` says,
    or at a checkpoint whose own purchases changed.
    """

    def score(self, node_id: NodeId) -> float:
        """Worth of buying `node_id` next; the highest wins, ties go to the lowest id.

        −inf and NaN are never bought; +inf is bought before anything finite.
        """
        ...

    def entered(self, node_id: NodeId) -> None:
        """`node_id` may be bought from now on: it is new, or its gate opened again."""
        return None

    def settled(self, launched_from: NodeId, chain: Sequence[NodeId]) -> Iterable[NodeId]:
        """Take in one settled purchase; `chain` may be empty.

        Returns:
            Checkpoints other than `launched_from` and `chain` whose score may have changed.
        """
        return ()


@runtime_checkable
class Allocator(Protocol):
    """Frozen configuration of a ranking; holds no state of a tree."""

    def check(self, header: TreeHeader) -> None:
        """Refuse a tree that this configuration cannot rank, before anything is bought.

        Raises:
            ConfigError: a setting contradicts the tree's header.
        """
        return None

    def session(self, view: View) -> Session | None:
        """A fresh ranking of the tree as it stands; None declines the phase."""
        ...
