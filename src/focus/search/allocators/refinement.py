"""Measure again where one more return improves a critic target most."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from focus.errors import ConfigError
from focus.search.allocators.base import INELIGIBLE, Allocator, Session, View
from focus.search.allocators.calibration import GAINS, BetaBernoulli, Calibration, Gain
from focus.tree import NodeId, Stats, TreeHeader

__all__ = ("ValueRefinement",)

LOWEST, HIGHEST = 0.02, 0.98
"""A value is never taken for certain: a critic at 0 or 1 would end its own measuring."""


@dataclass(frozen=True, kw_only=True)
class ValueRefinement(Allocator):
    """Ranks a checkpoint by the expected drop of its value's squared error.

    Values and returns are first rescaled from the critic's range to [0, 1], and V is
    clipped to [0.02, 0.98] of it; `model` gives the posterior and `gain` the score
    (formulas in `focus.search.allocators.calibration`). A score must be > 0 to be bought.

    A checkpoint without a value is never bought: missing is not zero. A tree without any
    value declines the phase, which is then skipped and reported as declined.

    Attributes:
        model: `BetaBernoulli` or `Gaussian`.
        gain: ``"derivative"``, ``"one_step"`` or ``"preposterior"``.
        prior_strength: κ; None takes the tree's own, and any other must equal it.

    Raises:
        ConfigError: an unknown gain or model; from `check`, a κ that is not the tree's
            or a critic range that is not an interval.
    """

    model: Calibration = field(default_factory=BetaBernoulli)
    gain: Gain = "derivative"
    prior_strength: float | None = None

    def __post_init__(self) -> None:
        if self.gain not in GAINS:
            raise ConfigError(f"gain must be one of {', '.join(GAINS)}, got {self.gain!r}")
        if not isinstance(self.model, Calibration):
            raise ConfigError(f"model: {self.model!r} has no posterior()")

    def check(self, header: TreeHeader) -> None:
        strength = header.returns.prior_strength
        if self.prior_strength not in (None, strength):
            raise ConfigError(
                f"ValueRefinement: prior_strength {self.prior_strength} differs from the "
                f"collection's {strength}; leave it out or set Returns(prior_strength=...)"
            )
        low, high = header.critic_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ConfigError(f"ValueRefinement: critic range ({low}, {high}) is not an interval")

    def session(self, view: View) -> Session | None:
        if all(node.value is None for node in view.tree):
            return None
        return _Ranking(self, view)


class _Ranking(Session):
    def __init__(self, config: ValueRefinement, view: View) -> None:
        self._view = view
        self._model = config.model
        self._gain = GAINS[config.gain]
        self._strength = view.tree.header.returns.prior_strength
        self._low, high = view.tree.header.critic_range
        self._width = high - self._low

    def score(self, node_id: NodeId) -> float:
        value = self._view.tree[node_id].value
        if value is None or not math.isfinite(value):
            return INELIGIBLE
        seen = self._rescaled(self._view.evidence[node_id])
        clipped = min(HIGHEST, max(LOWEST, (value - self._low) / self._width))
        gain = self._gain(
            self._model.posterior(clipped, seen, prior_strength=self._strength),
            count=seen.count,
            pending=self._view.pending_at(node_id),
            prior_strength=self._strength,
        )
        return gain if math.isfinite(gain) and gain > 0 else INELIGIBLE

    def _rescaled(self, seen: Stats) -> Stats:
        if not seen.count:
            return seen
        return Stats(seen.count, (seen.mean - self._low) / self._width, seen.m2 / self._width**2)
