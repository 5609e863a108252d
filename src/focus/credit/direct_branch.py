"""Temporal-difference credit in which each direct branch of a checkpoint counts once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, get_args

from focus.credit.base import (
    Credit,
    Target,
    check_prior_strength,
    edge_return,
    is_trained,
    prior_values,
    returns_for,
    target_returns,
)
from focus.errors import ConfigError, CreditError
from focus.tree import NodeId, Returns, Tree

__all__ = ("Baseline", "DirectBranchTd")

Baseline = Literal["siblings", "earlier"]
_NAME = "direct_branch_td"


@dataclass(frozen=True, slots=True)
class _Fork:
    """A live checkpoint: its critic value and the heads of the edges that count."""

    prior: float
    heads: Sequence[NodeId]


@dataclass(frozen=True, slots=True)
class _Backup:
    """V̂ of each node, and c(e) of each edge by its head."""

    values: Mapping[NodeId, float]
    over_edge: Mapping[NodeId, float]

    def over(self, heads: Sequence[NodeId]) -> list[float]:
        return [self.over_edge[head] for head in heads]


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
        forks = _forks(tree, allow_partial=allow_partial)
        backup = self._back_up(tree, forks, returns)
        reach = _reach(forks) if self.reach else {}
        baselines: dict[NodeId, float] = {}
        for fork in forks.values():
            sample = backup.over(fork.heads)
            per_edge = self._baselines(fork.prior, sample, returns.prior_strength)
            baselines.update(zip(fork.heads, per_edge, strict=True))
        trained = [node.id for node in tree.edges() if node.id in baselines and is_trained(node)]
        return Credit(
            estimator=_NAME,
            advantages={
                head: (backup.over_edge[head] - baselines[head]) * reach.get(head, 1.0)
                for head in trained
            },
            targets=self._targets(tree, forks, backup, returns),
            values=backup.values,
            diagnostics={
                head: {"return": backup.over_edge[head], "baseline": baselines[head]}
                for head in trained
            },
        )

    def _back_up(self, tree: Tree[Any], forks: Mapping[NodeId, _Fork], returns: Returns) -> _Backup:
        values: dict[NodeId, float] = {}
        over_edge: dict[NodeId, float] = {}
        for node in reversed(tree):
            if node.is_terminal:
                values[node.id] = 0.0
            elif fork := forks.get(node.id):
                sample = [over_edge[head] for head in fork.heads]
                values[node.id] = self._value(node.id, fork.prior, sample, returns)
            else:
                continue
            if node.edge is not None:
                over_edge[node.id] = edge_return(node, values[node.id], returns, estimator=_NAME)
        return _Backup(dict(reversed(values.items())), over_edge)

    def _value(
        self, node_id: NodeId, prior: float, sample: Sequence[float], returns: Returns
    ) -> float:
        if not self.mc_backup:
            return _blended(prior, sample, returns.prior_strength)
        if not sample:
            raise CreditError(
                f"{_NAME}: node {node_id} is an unfinished leaf; mc_backup needs every outcome"
            )
        return _mean(sample)

    def _baselines(self, prior: float, sample: Sequence[float], strength: float) -> list[float]:
        count = len(sample)
        if self.baseline == "earlier":
            before = list(accumulate((own - prior for own in sample), initial=0.0))[:count]
            return [prior + total / (strength + index) for index, total in enumerate(before)]
        if self.leave_one_out:
            total = math.fsum(own - prior for own in sample)
            return [prior + (total - (own - prior)) / (strength + count - 1) for own in sample]
        return [_blended(prior, sample, strength)] * count

    def _targets(
        self, tree: Tree[Any], forks: Mapping[NodeId, _Fork], backup: _Backup, returns: Returns
    ) -> dict[NodeId, Target]:
        admitted = target_returns(tree, returns)
        if admitted != returns:
            backup = self._back_up(tree, forks, admitted)
        return {
            node_id: Target(_mean(backup.over(fork.heads)), len(fork.heads))
            for node_id, fork in forks.items()
            if fork.heads
        }


def _forks(tree: Tree[Any], *, allow_partial: bool) -> dict[NodeId, _Fork]:
    priors = prior_values(tree, estimator=_NAME, allow_partial=allow_partial)
    valued = priors.keys() | set(tree.terminals())
    return {
        node_id: _Fork(prior, [child for child in tree.children(node_id) if child in valued])
        for node_id, prior in priors.items()
    }


def _reach(forks: Mapping[NodeId, _Fork]) -> dict[NodeId, float]:
    """Π 1/K over the checkpoints above each node; parents come before their children."""
    reach: dict[NodeId, float] = {}
    for node_id, fork in forks.items():
        for head in fork.heads:
            reach[head] = reach.get(node_id, 1.0) / len(fork.heads)
    return reach


def _mean(sample: Sequence[float]) -> float:
    return math.fsum(sample) / len(sample)


def _blended(prior: float, sample: Sequence[float], strength: float) -> float:
    """(κ·V + Σ c) / (κ + K), as a step away from V: exactly V where all agree with it."""
    return prior + math.fsum(own - prior for own in sample) / (strength + len(sample))
