"""Leave-one-out credit of independent rollouts."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from focus.credit.base import Credit, CriticFree, is_trained, trajectories
from focus.tree import Tree

__all__ = ("Rloo",)

_NAME = "rloo"


@dataclass(frozen=True, kw_only=True)
class Rloo(CriticFree):
    """A_i = R_i − mean of the other finished rollouts' returns, for every edge of rollout i.

    One vote per rollout, however many edges it has. A rollout without others to compare it
    with gets no weight at all, and unfinished ones are left out; there are no critic
    targets. Source: docs/concepts/credit.md, eq. 7.

    Unbiased: yes, for γ = 1 and a number n ≥ 2 of finished rollouts that no outcome has
    decided; the mean of the rollouts' sums over tokens is then an estimate of the gradient
    (divide the plain sum by n).

    >>> from focus.testing.trees import build_tree, chain, end, fork
    >>> tree = build_tree(fork(None, chain([0.5, 0.5], outcome=1.0), end(0.0), end(0.0)))
    >>> Rloo().estimate(tree).advantages
    {1: 1.0, 2: 1.0, 3: 1.0, 4: -0.5, 5: -0.5}
    """

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights of a tree whose only fork is the root.

        Raises:
            CreditError: another node has several children, or a return is not finite.
        """
        group = trajectories(tree, estimator=_NAME)
        if len(group) < 2:
            return Credit(estimator=_NAME, advantages={})
        # R - mean of the others = (R - mean of all) * n / (n - 1); equal returns give exactly 0.
        mean = statistics.mean(trajectory.total for trajectory in group)
        stretch = len(group) / (len(group) - 1)
        return Credit(
            estimator=_NAME,
            advantages={
                node_id: (trajectory.total - mean) * stretch
                for trajectory in group
                for node_id in trajectory.nodes
                if is_trained(tree[node_id])
            },
            diagnostics={tree.root.id: {"mean": mean, "rollouts": len(group)}},
        )
