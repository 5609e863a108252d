"""Credit of fixed-width trees from outcomes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from focus.credit.base import Credit, edge_return, is_trained
from focus.errors import CreditError
from focus.tree import NodeId, Tree

__all__ = ("SpoTree",)

_NAME = "spo_tree"


@dataclass(frozen=True, kw_only=True)
class SpoTree:
    """A(e) = c(e) − Ḡ(h): a branch against the plain mean of all branches of its checkpoint.

    c(e) = r(e) + γ^d(e)·Ḡ(h'), Ḡ the mean of c over the direct branches, 0 at a terminal.
    No critic is read, and there are no targets for one; every leaf must be finished. An edge
    without siblings gets 0: alone, it says nothing about choices. This is SPO's tree form
    with the segment as the unit. Source: docs/concepts/credit.md, eq. 8.

    Unbiased: no. A branch sits in its own baseline, which scales its credit by 1 − 1/K, and
    edges far below count once for each branch that was bought.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(None, fork(None, end(1.0), end(0.0)), end(0.0)))
    >>> SpoTree().estimate(tree).advantages
    {1: 0.25, 2: 0.5, 3: -0.5, 4: -0.25}
    """

    @property
    def prior_strength(self) -> float | None:
        """None: no critic is read."""
        return None

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights of a tree whose leaves all ended.

        Raises:
            CreditError: a leaf is unfinished, or a return is not finite.
        """
        values, over_edge = _back_up(tree)
        return Credit(
            estimator=_NAME,
            advantages={
                node.id: over_edge[node.id] - values[node.parent]
                for node in tree.edges()
                if node.parent is not None and is_trained(node)
            },
            values=dict(reversed(values.items())),
        )


def _back_up(tree: Tree[Any]) -> tuple[dict[NodeId, float], dict[NodeId, float]]:
    """Ḡ of each node, in falling id order, and c(e) of each edge by its head."""
    values: dict[NodeId, float] = {}
    over_edge: dict[NodeId, float] = {}
    for node in reversed(tree):
        branches = [over_edge[head] for head in tree.children(node.id)]
        values[node.id] = 0.0 if node.is_terminal else _mean(branches, node.id)
        if node.edge is not None:
            over_edge[node.id] = edge_return(
                node, values[node.id], tree.header.returns, estimator=_NAME
            )
    return values, over_edge


def _mean(branches: Sequence[float], node_id: NodeId) -> float:
    if not branches:
        raise CreditError(f"{_NAME}: node {node_id} is an unfinished leaf; it needs every outcome")
    first = branches[0]
    # Exact for equal branches: they must give exactly zero credit.
    return first + math.fsum(branch - first for branch in branches) / len(branches)
