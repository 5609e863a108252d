"""Finished leaves: their returns, and sums over those below each node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from focus.credit.base import edge_return
from focus.tree import NodeId, Tree

__all__ = ("leaf_returns", "sums_below")


def leaf_returns(tree: Tree[Any], *, estimator: str) -> dict[NodeId, float]:
    """Discounted return from the root of every finished leaf, by its id.

    Raises:
        CreditError: one is not finite.
    """
    returns = tree.header.returns
    # Along a path: the return so far, and the discount that what follows still carries.
    so_far: dict[NodeId, tuple[float, float]] = {0: (0.0, 1.0)}
    for node in tree.edges():
        assert node.parent is not None
        total, discount = so_far[node.parent]
        gained = edge_return(node, 0.0, returns, estimator=estimator)
        carried = discount * returns.discount**node.incoming.duration
        so_far[node.id] = (total + discount * gained, carried)
    return {node_id: so_far[node_id][0] for node_id in tree.terminals()}


def sums_below(tree: Tree[Any], leaves: Mapping[NodeId, float]) -> dict[NodeId, tuple[float, int]]:
    """Sum and number of the leaves' numbers at or below each node that has any.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> sums_below(build_tree(fork(None, end(1.0), fork(None))), {1: 0.5})
    {1: (0.5, 1), 0: (0.5, 1)}
    """
    sums: dict[NodeId, tuple[float, int]] = {}
    for node in reversed(tree):
        parts = [sums[child] for child in tree.children(node.id) if child in sums]
        if node.id in leaves:
            parts.append((leaves[node.id], 1))
        if parts:
            total = math.fsum(value for value, _ in parts)
            sums[node.id] = (total, sum(count for _, count in parts))
    return sums
