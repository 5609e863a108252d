"""Generalised advantage estimation on a tree: λ-returns backed up over branches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from focus.credit.base import (
    Columns,
    Credit,
    check_prior_strength,
    outcome_targets,
    returns_for,
    target_returns,
)
from focus.credit.forks import Forks, back_up, left_out_baselines
from focus.errors import ConfigError
from focus.tree import SuffixMeans, Tree

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
        forks = Forks.valued(tree, estimator=_NAME, allow_partial=allow_partial)
        backup = back_up(tree, forks, returns, divisor=self._divisor, estimator=_NAME)
        baselines = left_out_baselines(forks, backup, returns.prior_strength)
        over = backup.over_edge
        advantages = {head: over[head] - baselines[head] for head in forks.trained}
        seen = SuffixMeans.of(tree, target_returns(tree, returns))
        return Credit(
            estimator=_NAME,
            advantages=advantages,
            targets=outcome_targets(seen, forks.live),
            diagnostics=Columns(advantages, {"return": over, "baseline": baselines}, row=dict),
        )

    def _divisor(self, count: int) -> float:
        """K / λ: a share λ of the mean step away from V."""
        return count / self.decay if self.decay else math.inf
