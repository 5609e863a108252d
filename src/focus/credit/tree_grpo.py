"""Group-relative credit within and across the branches of a prompt."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from focus.credit.base import Credit, CriticFree, is_trained
from focus.credit.leaves import leaf_returns, sums_below
from focus.tree import NodeId, Tree

__all__ = ("TreeGrpo",)

_NAME = "tree_grpo"
_SPREAD_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class TreeGrpo(CriticFree):
    """A(e) = Σ over the finished leaves at or below e of A_across + A_within.

    A_across compares a leaf's return with all leaves of the prompt, A_within with those of
    its own branch of the root: (R − mean) / (s + 1e-6), s the sample standard deviation;
    equal returns, or a single leaf, give 0. The sum is what training on every root-to-leaf
    path would give a token that several of them share. Edges without a finished leaf below
    get no weight; there are no critic targets. This is Tree-GRPO's advantage.
    Source: docs/concepts/credit.md, eq. 9.

    Unbiased: no, for the reasons of `Grpo`; besides, the leaves of one branch share a prefix.

    Attributes:
        within: add A_within.
        scale: divide by s + 1e-6.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(None, fork(None, end(1.0), end(0.0)), end(0.5)))
    >>> TreeGrpo(scale=False).estimate(tree).advantages
    {1: 0.0, 2: 1.0, 3: -1.0, 4: 0.0}
    """

    within: bool = True
    scale: bool = True

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights of any tree.

        Raises:
            CreditError: a return is not finite.
        """
        totals = leaf_returns(tree, estimator=_NAME)
        credit = self._relative(totals)
        if self.within:
            for group in _by_root_branch(tree, totals):
                within = self._relative({leaf: totals[leaf] for leaf in group})
                credit |= {leaf: credit[leaf] + own for leaf, own in within.items()}
        below = sums_below(tree, credit)
        return Credit(
            estimator=_NAME,
            advantages={
                node.id: below[node.id][0]
                for node in tree.edges()
                if node.id in below and is_trained(node)
            },
        )

    def _relative(self, totals: Mapping[NodeId, float]) -> dict[NodeId, float]:
        # Exact sums: equal returns must give exactly zero, not rounding noise over 1e-6.
        mean = statistics.mean(totals.values()) if totals else 0.0
        spread = statistics.stdev(totals.values()) if len(totals) > 1 else 0.0
        divisor = spread + _SPREAD_FLOOR if self.scale and spread > 0 else 1.0
        return {leaf: (total - mean) / divisor for leaf, total in totals.items()}


def _by_root_branch(tree: Tree[Any], leaves: Iterable[NodeId]) -> Iterable[list[NodeId]]:
    branch: dict[NodeId, NodeId] = {}
    for node in tree.edges():
        assert node.parent is not None
        branch[node.id] = branch.get(node.parent, node.id)
    groups: dict[NodeId, list[NodeId]] = {}
    for leaf in leaves:
        groups.setdefault(branch[leaf], []).append(leaf)
    return groups.values()
