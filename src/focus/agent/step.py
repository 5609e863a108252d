"""Where an edge is sampled, and the settled edge."""

from __future__ import annotations

from dataclasses import dataclass, field

from focus.checkpoint import Checkpoint
from focus.execution import RequestCounts, Together
from focus.tokens import TokenIds
from focus.tree import Edge

__all__ = ("RequestPlace", "Step", "request_name")


def request_name(tree: str, expansion: int, index: int) -> str:
    """Name of the request for one edge of a tree."""
    return f"{tree}/{expansion}/{index}"


@dataclass(slots=True, kw_only=True)
class RequestPlace:
    """Where in a collection an edge is sampled; fixes its request name and seed.

    Attributes:
        tree: name of the tree: run/round/attempt/problem key.
        version: policy version that the tree is pinned to.
        expansion, index, phase: as in :class:`focus.tree.Provenance`.
        counts: the collection's request books.
        together: carries the first try of this edge's request, with those of siblings.
        name: of its request; derived.
    """

    tree: str
    version: str
    expansion: int
    index: int
    phase: int
    counts: RequestCounts
    together: Together | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = request_name(self.tree, self.expansion, self.index)


@dataclass(slots=True, kw_only=True)
class Step:
    """One settled edge and the checkpoint it leads to.

    Attributes:
        rebased: the whole new context, when the edge is a fold; else it is the old one and
            the edge's tokens.
    """

    edge: Edge
    checkpoint: Checkpoint
    is_terminal: bool
    is_truncated: bool
    rebased: TokenIds | None = None
