"""Temporal-difference credit on values refined by whole rollouts: the warm-up estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from focus.credit.base import (
    Credit,
    Target,
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

__all__ = ("RefinedTargets", "RefinedTd")

RefinedTargets = Literal["outcomes", "blend"]
_NAME = "refined_td"


@dataclass(frozen=True, kw_only=True)
class RefinedTd:
    """A(e) = r(e) + γ^d(e)·V̂(h') − V̂(h), with V̂ = (κ·V + n·ȳ) / (κ + n).

    ȳ is the mean of n suffix outcomes: one of the rollout that made the checkpoint, one of
    each rollout launched from it, where that rollout reached its end (`focus.tree.Evidence`).
    V̂ = V where n = 0, and 0 at a terminal. An outcome moves every checkpoint of its rollout
    alike, however long the chain, so the edges of a fork are told apart at once; the
    back-up of `DirectBranchTd` fades with each unbranched edge. With γ = 1 the advantages
    on a path to a terminal sum to its return − V̂(root). Source: docs/concepts/credit.md,
    eq. 5.

    Unbiased: no. V̂ holds the critic, and an edge's own outcome is in its baseline.

    Attributes:
        prior_strength: κ > 0; None takes the tree's own.
        targets: ``"outcomes"`` regresses the critic on ȳ with count n, so that it learns
            from outcomes alone. ``"blend"`` takes V̂ instead: less noise, but a critic that
            is fitted to a copy of itself moves only n/(κ+n) of the way.

    Raises:
        ConfigError: κ ≤ 0 or an unknown kind of targets.

    >>> from focus.testing.trees import build_tree, chain, end, fork
    >>> tree = build_tree(fork(0.5, chain([0.5, 0.5], outcome=1.0), end(0.0)))
    >>> credit = RefinedTd().estimate(tree)
    >>> credit.advantages
    {1: 0.25, 2: 0.0, 3: 0.25, 4: -0.5}
    >>> credit.targets[0], credit.targets[1]
    (Target(value=0.5, count=2), Target(value=1.0, count=1))
    """

    prior_strength: float | None = None
    targets: RefinedTargets = "outcomes"

    def __post_init__(self) -> None:
        check_prior_strength(self.prior_strength)
        if self.targets not in get_args(RefinedTargets):
            raise ConfigError(f"targets must be one of {get_args(RefinedTargets)}")

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights and targets of a settled tree.

        Raises:
            CreditError: a critic value is missing (unless `allow_partial`), or a number is
                not finite.
        """
        returns = returns_for(tree, self.prior_strength)
        priors = prior_values(tree, estimator=_NAME, allow_partial=allow_partial)
        evidence = Evidence.of(tree)
        values = dict.fromkeys(tree.terminals(), 0.0) | _refined(priors, evidence, returns)
        return Credit(
            estimator=_NAME,
            advantages=_advantages(tree, values, returns),
            targets=self._targets(tree, priors, evidence, returns),
            values=values,
            diagnostics={
                node_id: {"samples": evidence[node_id].count, "mean": evidence[node_id].mean}
                for node_id in priors
            },
        )

    def _targets(
        self,
        tree: Tree[Any],
        priors: Mapping[NodeId, float],
        evidence: Evidence,
        returns: Returns,
    ) -> dict[NodeId, Target]:
        admitted = target_returns(tree, returns)
        if admitted != returns:
            evidence = Evidence.of(tree, admitted)
        measured = outcome_targets(evidence, priors)
        if self.targets == "outcomes":
            return measured
        blend = _refined({node_id: priors[node_id] for node_id in measured}, evidence, returns)
        return {node_id: Target(aim, measured[node_id].count) for node_id, aim in blend.items()}


def _refined(
    priors: Mapping[NodeId, float], evidence: Evidence, returns: Returns
) -> dict[NodeId, float]:
    """V̂ by live checkpoint, as a step away from V: exactly V where the evidence agrees."""
    values = {}
    for node_id, prior in priors.items():
        stats = evidence[node_id]
        share = stats.count / (returns.prior_strength + stats.count)
        values[node_id] = prior + share * (stats.mean - prior)
    return values


def _advantages(
    tree: Tree[Any], values: Mapping[NodeId, float], returns: Returns
) -> dict[NodeId, float]:
    advantages = {}
    for node in tree.edges():
        assert node.parent is not None
        if node.id in values and node.parent in values and is_trained(node):
            own = edge_return(node, values[node.id], returns, estimator=_NAME)
            advantages[node.id] = own - values[node.parent]
    return advantages
