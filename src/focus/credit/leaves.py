"""Finished leaves: their returns, and sums over those below each node."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from focus.credit.base import check_returns, edge_terms
from focus.tree import NodeId, Tree
from focus.tree.returns import added

__all__ = ("leaf_returns", "sums_below")


def leaf_returns(tree: Tree[Any], *, estimator: str) -> dict[NodeId, float]:
    """Discounted return from the root of every finished leaf, by its id.

    Raises:
        CreditError: one is not finite.
    """
    gained, carried = edge_terms(tree, tree.header.returns)
    # Along a path: the return so far, and the discount that what follows still carries.
    totals, discounts = [0.0] * len(tree), [1.0] * len(tree)
    for node, parent in islice(enumerate(tree.columns.parents), 1, None):
        totals[node] = totals[parent] + discounts[parent] * gained[node]
        discounts[node] = discounts[parent] * carried[node]
    check_returns(totals, estimator=estimator)
    return {leaf: totals[leaf] for leaf in tree.terminals()}


def sums_below(tree: Tree[Any], leaves: Mapping[NodeId, float]) -> dict[NodeId, tuple[float, int]]:
    """Sum and number of the leaves' numbers at or below each node that has any.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> sums_below(build_tree(fork(None, end(1.0), fork(None))), {1: 0.5})
    {1: (0.5, 1), 0: (0.5, 1)}
    """
    sums: dict[NodeId, tuple[float, int]] = {}
    children = tree.columns.children
    for node in range(len(tree) - 1, -1, -1):
        if node in leaves:
            sums[node] = (leaves[node], 1)
        elif parts := [sums[child] for child in children[node] if child in sums]:
            totals, counts = zip(*parts, strict=True)
            sums[node] = (added(totals), sum(counts))
    return sums
