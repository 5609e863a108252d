"""Checkpoints with their branches, and returns backed up over them: what estimators share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from focus.credit.base import check_returns, edge_terms
from focus.errors import CreditError
from focus.tree import NodeId, Returns, Tree
from focus.tree.returns import added

__all__ = ("Backup", "Forks", "back_up", "back_up_means", "left_out_baselines")


@dataclass(frozen=True, slots=True)
class Forks:
    """What of a tree has a value; ids rise everywhere.

    Attributes:
        nodes: terminals, and checkpoints that count.
        live: those checkpoints.
        priors: critic value V of each of them; empty where no critic is read.
        heads: by node, heads of the edges that count below it.
        trained: heads of the edges that count and hold a sampled token.
    """

    nodes: Sequence[NodeId]
    live: Sequence[NodeId]
    priors: Sequence[float]
    heads: Sequence[Sequence[NodeId]]
    trained: Sequence[NodeId]

    @classmethod
    def of(cls, tree: Tree[Any]) -> Forks:
        """All of a tree, whatever a critic said."""
        columns = tree.columns
        return cls(range(len(tree)), columns.live, (), columns.children, columns.trained)

    @classmethod
    def valued(cls, tree: Tree[Any], *, estimator: str, allow_partial: bool) -> Forks:
        """Edges with a value at both ends: V at a checkpoint, 0 at a terminal.

        Raises:
            CreditError: a value is not finite, or is missing without `allow_partial`.
        """
        columns = tree.columns
        live, values = columns.live, columns.values
        if math.isfinite(sum(columns.priors)):
            return cls(range(len(tree)), live, columns.priors, columns.children, columns.trained)
        _refuse(tree, estimator=estimator, allow_partial=allow_partial)
        priors = [value for node in live if (value := values[node]) is not None]
        known = [node for node in live if values[node] is not None]
        wanted = {*known, *columns.terminals}
        heads: list[list[NodeId]] = [[] for _ in range(len(tree))]
        for node in known:
            heads[node] = [head for head in columns.children[node] if head in wanted]
        counted = {head for below in heads for head in below}
        trained = [head for head in columns.trained if head in counted]
        return cls(sorted(wanted), known, priors, heads, trained)


def _refuse(tree: Tree[Any], *, estimator: str, allow_partial: bool) -> None:
    """Raise for the first checkpoint whose critic value cannot be used, if there is one."""
    for node in tree.columns.live:
        value = tree.columns.values[node]
        is_usable = allow_partial if value is None else math.isfinite(value)
        if not is_usable:
            raise CreditError(
                f"{estimator}: node {node} has no usable critic value ({value}); "
                "the prediction failed when the tree was collected"
            )


@dataclass(frozen=True, slots=True)
class Backup:
    """Numbers by node id; without meaning where the node or the edge into it does not count.

    Attributes:
        values: V̂ of each checkpoint; 0 at a terminal.
        over_edge: c(e) = r(e) + γ^d(e)·V̂(h') of the edge into each node.
        totals, counts: Σ c over the direct branches of each checkpoint, and their number K.
        means: Σ c / K; 0 where there are none.
    """

    values: Sequence[float]
    over_edge: Sequence[float]
    totals: Sequence[float]
    counts: Sequence[int]
    means: Sequence[float]


def back_up(
    tree: Tree[Any],
    forks: Forks,
    returns: Returns,
    *,
    divisor: Callable[[int], float],
    estimator: str,
) -> Backup:
    """V̂ = V + (Σ c − K·V) / divisor(K) over the K branches of each checkpoint, leaves first.

    A step away from V, so exactly V where all branches agree with it; V itself at an
    unfinished leaf. Sums are rounded once, so that the order of siblings does not matter.

    Raises:
        CreditError: a return over an edge is not finite.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.5, end(0.0), end(1.0), end(1.0)))
    >>> forks = Forks.valued(tree, estimator="a test", allow_partial=False)
    >>> back_up(tree, forks, Returns(), divisor=lambda k: 1.0 + k, estimator="a test").values
    [0.625, 0.0, 0.0, 0.0]
    """
    gained, carried = edge_terms(tree, returns)
    heads_by_node = forks.heads
    counts = list(map(len, heads_by_node))
    divisors = list(map(divisor, range(1 + max(counts))))
    values, totals, means = [0.0] * len(tree), [0.0] * len(tree), [0.0] * len(tree)
    over = gained.copy()
    over_edge = over.__getitem__
    for node, value in zip(reversed(forks.live), reversed(forks.priors), strict=True):
        heads = heads_by_node[node]
        if len(heads) == 1:
            totals[node] = means[node] = total = over[heads[0]]
            value += (total - value) / divisors[1]
        elif heads:
            count = len(heads)
            totals[node] = total = added(map(over_edge, heads))
            means[node] = total / count
            value += (total - count * value) / divisors[count]
        values[node] = value
        over[node] = gained[node] + carried[node] * value
    check_returns(over, estimator=estimator)
    return Backup(values, over, totals, counts, means)


def back_up_means(tree: Tree[Any], forks: Forks, returns: Returns, *, estimator: str) -> Backup:
    """V̂ = mean of c over the branches of each checkpoint; no critic is read.

    Exact where all branches are worth the same.

    Raises:
        CreditError: a leaf is unfinished, or a return over an edge is not finite.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(None, fork(None, end(1.0), end(0.0)), end(0.0)))
    >>> back_up_means(tree, Forks.of(tree), Returns(), estimator="a test").values
    [0.25, 0.5, 0.0, 0.0, 0.0]
    """
    gained, carried = edge_terms(tree, returns)
    values, totals = [0.0] * len(tree), [0.0] * len(tree)
    counts = list(map(len, forks.heads))
    over = gained.copy()
    over_edge = over.__getitem__
    for node in reversed(forks.live):
        heads = forks.heads[node]
        if not heads:
            raise CreditError(
                f"{estimator}: node {node} is an unfinished leaf; every outcome is needed"
            )
        count, first = counts[node], over[heads[0]]
        total = added(map(over_edge, heads))
        value = first + (total - count * first) / count
        values[node], totals[node] = value, total
        over[node] = gained[node] + carried[node] * value
    check_returns(over, estimator=estimator)
    return Backup(values, over, totals, counts, means=values)


def left_out_baselines(forks: Forks, backup: Backup, strength: float) -> list[float]:
    """b_i = (κ·V + Σ_{j≠i} c_j) / (κ + K − 1) of each edge, by its head.

    A step away from V, so exactly V where all branches agree with it, or there is but one.
    """
    baselines = [0.0] * len(forks.heads)
    over, totals = backup.over_edge, backup.totals
    for node, prior in zip(forks.live, forks.priors, strict=True):
        heads = forks.heads[node]
        if len(heads) == 1:
            baselines[heads[0]] = prior
        elif heads:
            # Of the others: Σ_{j≠i} (c_j − V) = Σ c − K·V + V − c_i.
            rest = totals[node] - len(heads) * prior + prior
            weight = strength + len(heads) - 1
            for head in heads:
                baselines[head] = prior + (rest - over[head]) / weight
    return baselines
