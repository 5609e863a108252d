"""Temporal-difference credit in which each direct branch of a checkpoint counts once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Literal, get_args

from focus.credit.base import (
    Columns,
    Credit,
    Target,
    check_prior_strength,
    check_returns,
    edge_terms,
    prior_values,
    returns_for,
    target_returns,
    trained_heads,
)
from focus.errors import ConfigError, CreditError
from focus.tree import NodeId, Returns, Tree

__all__ = ("Baseline", "DirectBranchTd")

Baseline = Literal["siblings", "earlier"]
_NAME = "direct_branch_td"


@dataclass(frozen=True, slots=True)
class _Forks:
    """What has a value; all in id order.

    Attributes:
        valued: nodes with one: a critic value V, or 0 at a terminal.
        priors: V by checkpoint.
        heads: edges with a value at both ends, by the checkpoint above them.
        trained: those of them that hold a sampled token.
    """

    valued: Sequence[NodeId]
    priors: dict[NodeId, float]
    heads: Mapping[NodeId, Sequence[NodeId]]
    trained: Sequence[NodeId]

    @classmethod
    def of(cls, tree: Tree[Any], *, allow_partial: bool) -> _Forks:
        priors = prior_values(tree, estimator=_NAME, allow_partial=allow_partial)
        terminals = tree.terminals()
        if len(priors) + len(terminals) == len(tree):
            heads = {node_id: tree.children(node_id) for node_id in priors}
            return cls(range(len(tree)), priors, heads, trained_heads(tree))
        valued = priors.keys() | set(terminals)
        heads = {
            node_id: [head for head in tree.children(node_id) if head in valued]
            for node_id in priors
        }
        counted = set(chain.from_iterable(heads.values()))
        trained = [head for head in trained_heads(tree) if head in counted]
        return cls(sorted(valued), priors, heads, trained)


@dataclass(frozen=True, slots=True)
class _Backup:
    """V̂ of each node and c(e) of each edge, by id; and the c(e) below each checkpoint.

    Numbers by id are without meaning where the node has no value or the edge does not count.
    """

    values: Sequence[float]
    over_edge: Sequence[float]
    samples: dict[NodeId, list[float]]


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
        forks = _Forks.of(tree, allow_partial=allow_partial)
        backup = self._back_up(tree, forks, returns)
        over_edge = backup.over_edge
        baselines = self._baselines(tree, forks, backup, returns.prior_strength)
        advantages = {head: over_edge[head] - baselines[head] for head in forks.trained}
        if self.reach:
            reach = _reach(forks)
            advantages = {head: own * reach[head] for head, own in advantages.items()}
        return Credit(
            estimator=_NAME,
            advantages=advantages,
            targets=self._targets(tree, forks, backup, returns),
            values={node_id: backup.values[node_id] for node_id in forks.valued},
            diagnostics=Columns(advantages, {"return": over_edge, "baseline": baselines}),
        )

    def _back_up(self, tree: Tree[Any], forks: _Forks, returns: Returns) -> _Backup:
        gained, carried = edge_terms(tree, returns)
        strength = returns.prior_strength
        values = [0.0] * len(tree)
        over_edge = gained.copy()
        samples: dict[NodeId, list[float]] = {}
        for node_id, prior in reversed(forks.priors.items()):
            heads = forks.heads[node_id]
            samples[node_id] = sample = [over_edge[head] for head in heads]
            if not math.isfinite(sum(sample)):
                check_returns(zip(heads, sample, strict=True), estimator=_NAME)
            value = (
                _outcome(node_id, sample) if self.mc_backup else _blended(prior, sample, strength)
            )
            values[node_id] = value
            over_edge[node_id] = gained[node_id] + carried[node_id] * value
        return _Backup(values, over_edge, samples)

    def _baselines(
        self, tree: Tree[Any], forks: _Forks, backup: _Backup, strength: float
    ) -> list[float]:
        """b(h) of each edge, by its head."""
        if self.baseline == "siblings" and not self.leave_one_out and not self.mc_backup:
            values = backup.values
            return [values[node.parent or 0] for node in tree]
        baselines = [0.0] * len(tree)
        for node_id, sample in backup.samples.items():
            per_edge = self._per_edge(forks.priors[node_id], sample, strength)
            for head, baseline in zip(forks.heads[node_id], per_edge, strict=True):
                baselines[head] = baseline
        return baselines

    def _per_edge(self, prior: float, sample: Sequence[float], strength: float) -> list[float]:
        count = len(sample)
        if self.baseline == "earlier":
            before = list(accumulate((own - prior for own in sample), initial=0.0))[:count]
            return [prior + total / (strength + index) for index, total in enumerate(before)]
        if self.leave_one_out:
            total = math.fsum(own - prior for own in sample)
            return [prior + (total - (own - prior)) / (strength + count - 1) for own in sample]
        return [_blended(prior, sample, strength)] * count

    def _targets(
        self, tree: Tree[Any], forks: _Forks, backup: _Backup, returns: Returns
    ) -> dict[NodeId, Target]:
        admitted = target_returns(tree, returns)
        if admitted != returns:
            backup = self._back_up(tree, forks, admitted)
        return {
            node_id: Target(_mean(sample), len(sample))
            for node_id, sample in reversed(backup.samples.items())
            if sample
        }


def _reach(forks: _Forks) -> dict[NodeId, float]:
    """Π 1/K over the checkpoints above each node; parents come before their children."""
    reach: dict[NodeId, float] = {}
    for node_id, heads in forks.heads.items():
        for head in heads:
            reach[head] = reach.get(node_id, 1.0) / len(heads)
    return reach


def _outcome(node_id: NodeId, sample: Sequence[float]) -> float:
    if not sample:
        raise CreditError(
            f"{_NAME}: node {node_id} is an unfinished leaf; mc_backup needs every outcome"
        )
    return _mean(sample)


def _mean(sample: Sequence[float]) -> float:
    return math.fsum(sample) / len(sample)


def _blended(prior: float, sample: Sequence[float], strength: float) -> float:
    """(κ·V + Σ c) / (κ + K), as a step away from V: exactly V where all agree with it."""
    return prior + math.fsum([own - prior for own in sample]) / (strength + len(sample))
