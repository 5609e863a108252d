"""Credit of entropy-guided trees from leave-one-out leaf outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from focus.credit.base import Credit, CriticFree, is_trained
from focus.credit.leaves import leaf_returns, sums_below
from focus.tree import NodeId, Tree

__all__ = ("TreeRl",)

_NAME = "tree_rl"


@dataclass(frozen=True, kw_only=True)
class TreeRl(CriticFree):
    """A(e) = [(V(h') − V(root)) + (V(h') − V(h))] / √L(h'), global plus local advantage.

    V is the mean of the leave-one-out returns R_i − mean_{j≠i} R_j over the finished leaves
    at or below a node, L their number; over all leaves that is 0, so V(root) = 0.
    Edges without a finished leaf below get no weight; there are no critic targets. This is
    TreeRL's process reward with its division by √L. Source: docs/concepts/credit.md, eq. 10.

    Unbiased: no; leaves of a checkpoint that was branched often outvote the others.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(None, fork(None, end(1.0), end(0.0)), end(0.0)))
    >>> {node: round(a, 4) for node, a in TreeRl().estimate(tree).advantages.items()}
    {1: 0.3536, 2: 1.75, 3: -1.25, 4: -1.0}
    """

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights of any tree; fewer than two finished leaves give none.

        Raises:
            CreditError: a return is not finite.
        """
        totals = leaf_returns(tree, estimator=_NAME)
        if len(totals) < 2:
            return Credit(estimator=_NAME, advantages={})
        below = sums_below(tree, _leave_one_out(totals))
        values = {node_id: total / count for node_id, (total, count) in below.items()}
        values[tree.root.id] = 0.0
        return Credit(
            estimator=_NAME,
            advantages={
                node.id: (2 * values[node.id] - values[node.parent]) / math.sqrt(below[node.id][1])
                for node in tree.edges()
                if node.parent is not None and node.id in values and is_trained(node)
            },
            values=values,
        )


def _leave_one_out(totals: Mapping[NodeId, float]) -> dict[NodeId, float]:
    count = len(totals)
    first = next(iter(totals.values()))
    # Exact for equal returns: they must give exactly zero credit.
    mean = first + math.fsum(total - first for total in totals.values()) / count
    return {leaf: (total - mean) * count / (count - 1) for leaf, total in totals.items()}
