"""What the finished leaves below each checkpoint came to."""

from __future__ import annotations

from typing import Any

from focus.tree import NodeId, Tree

__all__ = ("mean_outcomes", "truncated_below")


def mean_outcomes(tree: Tree[Any]) -> list[float | None]:
    """Mean outcome of the finished leaves below each node, itself included; None without any.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> mean_outcomes(build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0)), fork(0.5))))
    [0.5, 0.5, 1.0, 0.0, None]
    """
    columns = tree.columns
    parents = columns.parents
    sums, counts = [0.0] * len(tree), [0] * len(tree)
    for leaf in columns.terminals:
        sums[leaf], counts[leaf] = columns.rewards[leaf], 1
    for node in range(len(tree) - 1, 0, -1):
        parent = parents[node]
        sums[parent] += sums[node]
        counts[parent] += counts[node]
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def truncated_below(tree: Tree[Any]) -> set[NodeId]:
    """Nodes with a finished leaf at or below them that ran out of allowance or context.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> truncated_below(build_tree(fork(0.5, end(1.0), end(0.0, truncated=True))))
    {0, 2}
    """
    found: set[NodeId] = set()
    for leaf in tree.terminals():
        if tree[leaf].is_truncated:
            current: NodeId | None = leaf
            while current is not None and current not in found:
                found.add(current)
                current = tree[current].parent
    return found
