"""Edge rewards, durations and discounting: the one place returns are defined."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from focus.errors import ConfigError
from focus.tree.node import Edge

__all__ = ("Returns", "added")


@dataclass(frozen=True, kw_only=True)
class Returns:
    """γ, β and κ of one collection; search, credit and critic targets read the same object.

    Attributes:
        discount: γ in (0, 1], applied once per env transition.
        step_weight: β, weight of shaping against outcome.
        prior_strength: κ > 0, pseudo-count of the critic's estimate.

    Raises:
        ConfigError: a value is outside its range.
    """

    discount: float = 1.0
    step_weight: float = 1.0
    prior_strength: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.discount <= 1:
            raise ConfigError(f"discount must lie in (0, 1], got {self.discount}")
        if not math.isfinite(self.step_weight):
            raise ConfigError(f"step_weight must be finite, got {self.step_weight}")
        if not (math.isfinite(self.prior_strength) and self.prior_strength > 0):
            raise ConfigError(f"prior_strength must be > 0, got {self.prior_strength}")

    def edge_reward(self, edge: Edge) -> float:
        """r(e) = outcome + β · step reward."""
        return edge.reward + self.step_weight * edge.step_reward

    def backed_up(self, edge: Edge, successor: float) -> float:
        """c(e) = r(e) + γ^d(e) · successor.

        >>> from focus.tree.node import Provenance
        >>> edge = Edge(spans=(), provenance=Provenance(expansion=0, index=0, phase=0),
        ...             reward=1.0, duration=1)
        >>> Returns(discount=0.5).backed_up(edge, 0.5)
        1.25
        """
        return self.edge_reward(edge) + self.discount**edge.duration * successor


def added(numbers: Iterable[float]) -> float:
    """Their sum, rounded once, so that order does not matter; NaN where it has no finite value.

    >>> added([0.1] * 10), added([1e308, 1e308])
    (1.0, nan)
    """
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.nan
