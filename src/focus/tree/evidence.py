"""What finished rollouts have shown about each checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from focus._values import filled
from focus.tree.node import NodeId
from focus.tree.returns import Returns, added
from focus.tree.tree import Tree

__all__ = ("Evidence", "Stats", "SuffixMeans", "suffix_returns")


@dataclass(frozen=True, slots=True)
class Stats:
    """Running statistics of suffix returns (Welford).

    >>> Stats().with_sample(1.0).with_sample(0.0)
    Stats(count=2, mean=0.5, m2=0.5)
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def with_sample(self, value: float) -> Stats:
        count = self.count + 1
        delta = value - self.mean
        mean = self.mean + delta / count
        return _stats(count, mean, self.m2 + delta * (value - mean))

    @property
    def variance(self) -> float:
        """Unbiased sample variance; 0 below two samples."""
        return self.m2 / (self.count - 1) if self.count >= 2 else 0.0


_stats = filled(Stats)
_NONE = Stats()


def suffix_returns(tree: Tree[Any], chain: Sequence[NodeId], returns: Returns) -> list[float]:
    """Discounted return from the start of `chain` and from each of its nodes to its end.

    `chain` is one expansion's nodes in order; the first value belongs to the
    checkpoint it was launched from, the last one (the terminal's own) is 0.
    """
    values = [0.0]
    for node_id in reversed(chain):
        values.append(returns.backed_up(tree[node_id].incoming, values[-1]))
    return values[::-1]


@dataclass(frozen=True, slots=True)
class SuffixMeans:
    """Number and mean of each checkpoint's suffix returns, in lists by node id.

    What `Evidence` holds of a settled tree's checkpoints, from one pass over its numbers.

    Attributes:
        counts: finished rollouts that made the checkpoint or were launched from it.
        means: 0 where there are none, and at terminals, which are not counted.
    """

    counts: Sequence[int]
    means: Sequence[float]

    @classmethod
    def of(cls, tree: Tree[Any], returns: Returns) -> SuffixMeans:
        """Read a settled tree.

        >>> from focus.testing.trees import build_tree, chain, end, fork
        >>> tree = build_tree(fork(0.5, chain([0.5, 0.5], outcome=1.0), end(0.0)))
        >>> SuffixMeans.of(tree, tree.header.returns)
        SuffixMeans(counts=[2, 1, 1, 0, 0], means=[0.5, 1.0, 1.0, 0.0, 0.0])
        """
        columns = tree.columns
        children, continued = columns.children, columns.continued
        gained, carried = columns.gained(returns), columns.carried(returns)
        counts, means = list(map(len, children)), [0.0] * len(tree)
        # Over the edge into each node, to the end of the rollout that made it; NaN if it has none.
        over = gained.copy()
        over_edge = over.__getitem__
        for node in reversed(columns.live):
            own, heads = continued[node], children[node]
            over[node] = gained[node] + carried[node] * over[own] if own else math.nan
            if len(heads) == 1:
                total = over[heads[0]]
            elif heads:
                total = added(map(over_edge, heads))
            else:
                continue
            if total == total:
                means[node] = total / counts[node]
            else:
                sample = [value for head in heads if (value := over[head]) == value]
                counts[node] = len(sample)
                means[node] = added(sample) / max(1, len(sample))
        return cls(counts, means)


class Evidence:
    """Suffix returns per checkpoint, from rollouts that reached the end.

    An expansion launched at h with nodes c₁…c_K counts only if c_K is terminal; then h
    and each cᵢ get one sample each: the return of *this* rollout from there on.
    Ancestors of h get none, so descendants are never pooled upwards.
    """

    def __init__(self, returns: Returns) -> None:
        self._returns = returns
        self._stats: dict[NodeId, Stats] = {}

    @classmethod
    def of(cls, tree: Tree[Any], returns: Returns | None = None) -> Evidence:
        """Rebuild from a settled tree; equals what its search saw at the end.

        `returns` replaces the tree's own, for evidence of the same rollouts under others.
        """
        evidence = cls(tree.header.returns if returns is None else returns)
        chains: dict[int, list[NodeId]] = {}
        for node in tree.edges():
            chains.setdefault(node.incoming.provenance.expansion, []).append(node.id)
        for chain in sorted(chains.values(), key=lambda chain: chain[-1]):
            evidence.record(tree, chain)
        return evidence

    def __getitem__(self, node_id: NodeId) -> Stats:
        return self._stats.get(node_id, _NONE)

    def record(self, tree: Tree[Any], chain: Sequence[NodeId]) -> None:
        """Take in one finished expansion; one that did not reach the end leaves nothing."""
        if not chain or not tree[chain[-1]].is_terminal:
            return
        launched_from = tree[chain[0]].parent
        assert launched_from is not None
        values = suffix_returns(tree, chain, self._returns)
        for node_id, value in zip((launched_from, *chain), values, strict=True):
            self._stats[node_id] = self[node_id].with_sample(value)
