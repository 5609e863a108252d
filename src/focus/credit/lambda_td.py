"""Generalised advantage estimation on a tree: λ-returns backed up over branches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from focus.credit.base import (
    Credit,
    check_prior_strength,
    edge_return,
    is_trained,
    outcome_targets,
    prior_values,
    returns_for,
    target_returns,
)
from focus.errors import ConfigError
from focus.tree import Evidence, NodeId, Returns, Tree

__all__ = ("LambdaTd",)

_NAME = "lambda_td"


@dataclass(frozen=True, kw_only=True)
class LambdaTd:
    """A_i = c_i − (κ·V(h) + Σ_{j≠i} c_j) / (κ + K − 1), with λ-returns over the branches.

    c(e) = r(e) + γ^d(e) · [(1 − λ)·V(h') + λ·Ḡ(h')], Ḡ the mean of c over the K direct
    branches of a checkpoint, V itself at an unfinished leaf, 0 at a terminal. On an unbranched
    rollout, where the sum is empty, this is generalised advantage estimation with checkpoints
    as its steps: λ = 0 trusts the critic alone, λ = 1 outcomes alone. Siblings add what they
    have seen to the baseline, never the edge's own outcome. The critic's target is the mean
    suffix outcome of a checkpoint with its count. Source: docs/concepts/credit.md, eq. 12.

    Unbiased: with λ = 1, γ = 1, on trees that branch at the root only, n rollouts of which
    nobody chose: then n times the gradient, for any critic. Not with λ < 1 unless the critic
    is right, nor where branches were placed by what was seen.

    Attributes:
        decay: λ in [0, 1].
        prior_strength: κ > 0; None takes the tree's own.

    Raises:
        ConfigError: λ or κ is out of range.

    >>> from focus.testing.trees import build_tree, chain, end, fork
    >>> tree = build_tree(fork(0.5, chain([0.5, 0.8], outcome=1.0), end(0.0)))
    >>> {node: round(a, 3) for node, a in LambdaTd(decay=0.5).estimate(tree).advantages.items()}
    {1: 0.45, 2: 0.4, 3: 0.2, 4: -0.6}
    """

    decay: float = 0.9
    prior_strength: float | None = None

    def __post_init__(self) -> None:
        check_prior_strength(self.prior_strength)
        if not 0 <= self.decay <= 1:
            raise ConfigError(f"decay is λ in [0, 1], got {self.decay}")

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights and targets of a settled tree.

        Raises:
            CreditError: a critic value is missing (unless `allow_partial`), or a number is
                not finite.
        """
        returns = returns_for(tree, self.prior_strength)
        priors = prior_values(tree, estimator=_NAME, allow_partial=allow_partial)
        evidence = Evidence.of(tree, target_returns(tree, returns))
        over_edge = self._back_up(tree, priors, returns)
        baselines = _baselines(tree, priors, over_edge, returns.prior_strength)
        trained = [node.id for node in tree.edges() if node.id in baselines and is_trained(node)]
        return Credit(
            estimator=_NAME,
            advantages={head: over_edge[head] - baselines[head] for head in trained},
            targets=outcome_targets(evidence, priors),
            diagnostics={
                head: {"return": over_edge[head], "baseline": baselines[head]} for head in trained
            },
        )

    def _back_up(
        self, tree: Tree[Any], priors: Mapping[NodeId, float], returns: Returns
    ) -> dict[NodeId, float]:
        """c(e) of each edge whose both ends have a value, by its head."""
        over_edge: dict[NodeId, float] = {}
        for node in reversed(tree):
            if node.edge is None or node.parent not in priors:
                continue
            if node.is_terminal:
                successor = 0.0
            elif node.id in priors:
                value = priors[node.id]
                below = [over_edge[h] for h in tree.children(node.id) if h in over_edge]
                gap = math.fsum(own - value for own in below) / len(below) if below else 0.0
                successor = value + self.decay * gap
            else:
                continue
            over_edge[node.id] = edge_return(node, successor, returns, estimator=_NAME)
        return over_edge


def _baselines(
    tree: Tree[Any],
    priors: Mapping[NodeId, float],
    over_edge: Mapping[NodeId, float],
    strength: float,
) -> dict[NodeId, float]:
    """V moved towards the other branches; a step away from V, so exactly V where they agree."""
    baselines: dict[NodeId, float] = {}
    for node_id, prior in priors.items():
        heads = [head for head in tree.children(node_id) if head in over_edge]
        total = math.fsum(over_edge[head] - prior for head in heads)
        for head in heads:
            others = total - (over_edge[head] - prior)
            baselines[head] = prior + others / (strength + len(heads) - 1)
    return baselines
