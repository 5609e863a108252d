"""Temporal-difference credit in which each direct branch of a checkpoint counts once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from focus.credit.base import (
    Columns,
    Credit,
    Target,
    check_prior_strength,
    returns_for,
    target_returns,
    targets_of,
)
from focus.credit.forks import Backup, Forks, back_up, back_up_means, left_out_baselines
from focus.errors import ConfigError
from focus.tree import NodeId, Returns, Tree

__all__ = ("Baseline", "DirectBranchTd")

Baseline = Literal["siblings", "earlier"]
_NAME = "direct_branch_td"


@dataclass(frozen=True, kw_only=True)
class DirectBranchTd:
    """A(e) = c(e) − b(h), with c(e) = r(e) + γ^d(e)·V̂(h') for an edge e from h to h'.

    With K direct branches, their mean Ḡ and the critic's V, by default

        b(h) = V̂(h) = (κ·V(h) + K·Ḡ(h)) / (κ + K)

    (V itself at an unfinished leaf; 0 at a terminal, whose outcome sits on its edge).
    Critic target: Ḡ with count K, wherever K ≥ 1. With γ = 1 and no option set, the
    advantages on a path to a terminal sum to its return − V̂(root).
    Source: docs/concepts/credit.md, eq. 1-3.

    Unbiased: only with `leave_one_out`, `reach` and `mc_backup` together, γ = 1, and the
    number of branches at each depth fixed beforehand; then for any critic. Not with the
    default back-up (V leaks in at each checkpoint), not as a plain sum without `reach`
    (bought states are over-weighted), not when outcomes decide where branches go. With
    ``baseline="earlier"`` and `mc_backup`, a checkpoint that stops buying on what it has
    seen contributes E[K] times its exact gradient, if nothing below its branches adapts.

    Attributes:
        prior_strength: κ > 0; None takes the tree's own.
        leave_one_out: b_i = (κ·V + Σ_{j≠i} c_j) / (κ + K − 1); an edge no longer sits in
            its own baseline. The default advantage is this one times (κ+K−1)/(κ+K).
        reach: multiply each advantage by Π 1/K over the checkpoints above the edge, so
            that a sum over the tree estimates a mean over trajectories.
        mc_backup: back up the plain mean Ḡ instead of V̂; the critic is in b only. Every
            leaf must be terminal.
        baseline: ``"siblings"``, or ``"earlier"``: b_i = (κ·V + Σ_{j<i} c_j) / (κ + i)
            over the i branches attached before.

    Raises:
        ConfigError: κ ≤ 0, an unknown baseline, or two baselines at once.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> credit = DirectBranchTd().estimate(build_tree(fork(0.5, end(0.5), end(1.0))))
    >>> {node: round(a, 4) for node, a in credit.advantages.items()}
    {1: -0.1667, 2: 0.3333}
    >>> credit.targets[0], round(credit.values[0], 4)
    (Target(value=0.75, count=2), 0.6667)
    """

    prior_strength: float | None = None
    leave_one_out: bool = False
    reach: bool = False
    mc_backup: bool = False
    baseline: Baseline = "siblings"

    def __post_init__(self) -> None:
        check_prior_strength(self.prior_strength)
        if self.baseline not in get_args(Baseline):
            raise ConfigError(f"baseline must be one of {get_args(Baseline)}, got {self.baseline}")
        if self.leave_one_out and self.baseline == "earlier":
            raise ConfigError("leave_one_out and baseline='earlier' name two baselines; take one")

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights and targets of a settled tree; one pass up, one down.

        Raises:
            CreditError: a critic value is missing (unless `allow_partial`), a number is
                not finite, or `mc_backup` meets an unfinished leaf.
        """
        returns = returns_for(tree, self.prior_strength)
        forks = Forks.valued(tree, estimator=_NAME, allow_partial=allow_partial)
        backup = self._back_up(tree, forks, returns)
        over = backup.over_edge
        baselines = self._baselines(tree, forks, backup, returns.prior_strength)
        advantages = {head: over[head] - baselines[head] for head in forks.trained}
        if self.reach:
            reach = _reach(forks)
            advantages = {head: own * reach[head] for head, own in advantages.items()}
        return Credit(
            estimator=_NAME,
            advantages=advantages,
            targets=self._targets(tree, forks, backup, returns),
            values={node: backup.values[node] for node in forks.nodes},
            diagnostics=Columns(advantages, {"return": over, "baseline": baselines}, row=dict),
        )

    def _back_up(self, tree: Tree[Any], forks: Forks, returns: Returns) -> Backup:
        if self.mc_backup:
            return back_up_means(tree, forks, returns, estimator=_NAME)
        strength = returns.prior_strength
        return back_up(tree, forks, returns, divisor=lambda k: strength + k, estimator=_NAME)

    def _baselines(
        self, tree: Tree[Any], forks: Forks, backup: Backup, strength: float
    ) -> Sequence[float]:
        """b(h) of each edge, by its head."""
        if self.leave_one_out:
            return left_out_baselines(forks, backup, strength)
        if self.baseline == "earlier":
            return _earlier_baselines(forks, backup.over_edge, strength)
        values = _blends(forks, backup.totals, strength) if self.mc_backup else backup.values
        return [values[parent] for parent in tree.columns.parents]

    def _targets(
        self, tree: Tree[Any], forks: Forks, backup: Backup, returns: Returns
    ) -> Mapping[NodeId, Target]:
        admitted = target_returns(tree, returns)
        if admitted != returns:
            backup = self._back_up(tree, forks, admitted)
        return targets_of(forks.live, backup.means, backup.counts)


def _blends(forks: Forks, totals: Sequence[float], strength: float) -> list[float]:
    """(κ·V + Σ c) / (κ + K) of each checkpoint, where that is not what was backed up."""
    blends = [0.0] * len(forks.heads)
    for node, prior in zip(forks.live, forks.priors, strict=True):
        count = len(forks.heads[node])
        blends[node] = prior + (totals[node] - count * prior) / (strength + count)
    return blends


def _earlier_baselines(forks: Forks, over_edge: Sequence[float], strength: float) -> list[float]:
    """(κ·V + Σ_{j<i} c_j) / (κ + i) of each edge, by its head."""
    baselines = [0.0] * len(forks.heads)
    for node, prior in zip(forks.live, forks.priors, strict=True):
        total = 0.0
        for index, head in enumerate(forks.heads[node]):
            baselines[head] = prior + total / (strength + index)
            total += over_edge[head] - prior
    return baselines


def _reach(forks: Forks) -> list[float]:
    """Π 1/K over the checkpoints above each node; parents come before their children."""
    reach = [1.0] * len(forks.heads)
    for node in forks.live:
        heads = forks.heads[node]
        for head in heads:
            reach[head] = reach[node] / len(heads)
    return reach
