"""Temporal-difference credit on values refined by whole rollouts: the warm-up estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from focus.credit.base import (
    Columns,
    Credit,
    Target,
    check_prior_strength,
    check_returns,
    edge_terms,
    outcome_targets,
    returns_for,
    target_returns,
    targets_of,
)
from focus.credit.forks import Forks
from focus.errors import ConfigError
from focus.tree import NodeId, Returns, SuffixMeans, Tree

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
        forks = Forks.valued(tree, estimator=_NAME, allow_partial=allow_partial)
        gained, carried = edge_terms(tree, returns)
        seen = SuffixMeans.of(tree, returns)
        values, parents = _refined(forks, seen, returns), tree.columns.parents
        over = [
            own + share * ahead for own, share, ahead in zip(gained, carried, values, strict=True)
        ]
        check_returns(over, estimator=_NAME)
        return Credit(
            estimator=_NAME,
            advantages={head: over[head] - values[parents[head]] for head in forks.trained},
            targets=self._targets(tree, forks, seen, returns),
            values={node: values[node] for node in forks.nodes},
            diagnostics=Columns(
                dict.fromkeys(forks.live), {"samples": seen.counts, "mean": seen.means}, row=dict
            ),
        )

    def _targets(
        self, tree: Tree[Any], forks: Forks, seen: SuffixMeans, returns: Returns
    ) -> Mapping[NodeId, Target]:
        admitted = target_returns(tree, returns)
        if admitted != returns:
            seen = SuffixMeans.of(tree, admitted)
        if self.targets == "outcomes":
            return outcome_targets(seen, forks.live)
        return targets_of(forks.live, _refined(forks, seen, returns), seen.counts)


def _refined(forks: Forks, seen: SuffixMeans, returns: Returns) -> list[float]:
    """V̂ by node, as a step away from V: exactly V where the evidence agrees; 0 at a terminal."""
    counts, means, strength = seen.counts, seen.means, returns.prior_strength
    values = [0.0] * len(counts)
    for node, prior in zip(forks.live, forks.priors, strict=True):
        count = counts[node]
        values[node] = prior + count / (strength + count) * (means[node] - prior)
    return values
