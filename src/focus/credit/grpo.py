"""Group-relative credit of independent rollouts."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from focus.credit.base import Credit, CriticFree, is_trained, trajectories
from focus.tree import Tree

__all__ = ("Grpo",)

_NAME = "grpo"
_SPREAD_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class Grpo(CriticFree):
    """A = (R − mean R) / (s + 1e-6) for every edge of a rollout with return R.

    Mean and sample standard deviation s (n − 1) go over the finished rollouts of the
    prompt, one each however many edges they have. Equal returns, or a single rollout,
    give 0. Unfinished rollouts are left out; there are no critic targets.
    Source: docs/concepts/credit.md, eq. 6.

    Unbiased: no. Unscaled, the expectation is (1 − 1/n) times the exact gradient, as the
    mean holds the rollout itself; with `scale` it is not even parallel to it.

    Attributes:
        scale: divide by s + 1e-6.

    >>> from focus.testing.trees import build_tree, chain, end, fork
    >>> tree = build_tree(fork(None, chain([0.5, 0.5], outcome=1.0), end(0.0)))
    >>> Grpo(scale=False).estimate(tree).advantages
    {1: 0.5, 2: 0.5, 3: 0.5, 4: -0.5}
    """

    scale: bool = True

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights of a tree whose only fork is the root.

        Raises:
            CreditError: another node has several children, or a return is not finite.
        """
        group = trajectories(tree, estimator=_NAME)
        totals = [trajectory.total for trajectory in group]
        # Exact sums: equal returns must give exactly zero, not rounding noise over 1e-6.
        mean = statistics.mean(totals) if totals else 0.0
        spread = statistics.stdev(totals) if len(totals) > 1 else 0.0
        divisor = spread + _SPREAD_FLOOR if self.scale and spread > 0 else 1.0
        return Credit(
            estimator=_NAME,
            advantages={
                node_id: (trajectory.total - mean) / divisor
                for trajectory in group
                for node_id in trajectory.nodes
                if is_trained(tree[node_id])
            },
            diagnostics={
                tree.root.id: {"baseline": mean, "spread": spread, "rollouts": len(group)}
            },
        )
