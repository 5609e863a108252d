"""What the finished leaves below each checkpoint came to."""

from __future__ import annotations

from typing import Any

from focus.tree import Tree

__all__ = ("mean_outcomes",)


def mean_outcomes(tree: Tree[Any]) -> list[float | None]:
    """Mean outcome of the finished leaves below each node, itself included; None without any.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> mean_outcomes(build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0)), fork(0.5))))
    [0.5, 0.5, 1.0, 0.0, None]
    """
    sums, counts = [0.0] * len(tree), [0] * len(tree)
    for node in reversed(list(tree)):
        if node.is_terminal:
            sums[node.id], counts[node.id] = tree.outcome(node.id), 1
        if node.parent is not None:
            sums[node.parent] += sums[node.id]
            counts[node.parent] += counts[node.id]
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]
