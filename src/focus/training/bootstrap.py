"""Intervals of means over samples that come in clusters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ("ClusterBootstrap",)


class ClusterBootstrap:
    """Percentile intervals of a mean, drawing whole clusters with replacement.

    Samples of one problem succeed and fail together, so problems are drawn and not samples
    (Davison and Hinkley 1997, section 3.8). The same draws serve every quantity.

    Args:
        clusters: cluster of each sample.
        draws: bootstrap samples.
        seed: of the draws.
        level: mass of the interval.

    >>> bootstrap = ClusterBootstrap(["a", "a", "b", "c"], draws=200)
    >>> bootstrap.interval([1.0, 1.0, 1.0, 1.0])
    (1.0, 1.0)
    """

    def __init__(
        self, clusters: Sequence[str], *, draws: int = 1000, seed: int = 0, level: float = 0.95
    ) -> None:
        names = {name: place for place, name in enumerate(dict.fromkeys(clusters))}
        self._place = np.array([names[name] for name in clusters], dtype=np.intp)
        self._clusters = len(names)
        chances = np.full(self._clusters, 1.0 / self._clusters)
        rng = np.random.default_rng(seed)
        # How often each draw holds each cluster.
        self._times = rng.multinomial(self._clusters, chances, size=draws).astype(np.float32)
        tail = (1.0 - level) / 2.0
        self._quantiles = (tail, 1.0 - tail)

    def interval(
        self, values: Sequence[float], *, where: Sequence[bool] | None = None
    ) -> tuple[float, float]:
        """Low and high end for the mean of `values`, or of those at `where`.

        Raises:
            ValueError: there is no value.
        """
        chosen = np.ones(len(values), dtype=bool) if where is None else np.array(where, dtype=bool)
        if not chosen.any():
            raise ValueError("no values to give an interval of")
        place = self._place[chosen]
        weights = np.asarray(values, dtype=np.float64)[chosen]
        sums = np.bincount(place, weights, minlength=self._clusters).astype(np.float64)
        sizes = np.bincount(place, minlength=self._clusters).astype(np.float64)
        totals = self._times @ sizes
        met = totals > 0
        low, high = np.quantile((self._times @ sums)[met] / totals[met], self._quantiles)
        return float(low), float(high)
