"""How wrong a critic's value still is, judged by the returns seen, and what one more is worth.

Notation: V critic value, κ its pseudo-count, n, ȳ, s² count, mean and variance of the
returns seen, m purchases in flight, V* the true value. The value in use is the blend
B = (κV + nȳ)/(κ + n), whose squared error after n returns of variance σ² is

    MSE(n) = (κ²e² + nσ²)/(κ + n)²,    e = V − V*.

A calibration replaces e² and σ² by what is known of them: E2 = E[(V − V*)² | returns] and
S2, the predictive variance of the next return. S2 is predictive on purpose: it counts
the doubt about V* as well, and that surcharge makes an unmeasured checkpoint worth
nothing at κ = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

from focus.errors import ConfigError
from focus.tree import Stats

__all__ = (
    "BetaBernoulli",
    "Calibration",
    "Gain",
    "Gaussian",
    "Posterior",
    "derivative_gain",
    "one_step_gain",
    "preposterior_gain",
)

Gain = Literal["derivative", "one_step", "preposterior"]


@dataclass(frozen=True, slots=True)
class Posterior:
    """What is known of a checkpoint's true value.

    Attributes:
        mean: of V*.
        prior_error: E2, expected squared error of the critic's V.
        return_variance: S2, predictive variance of the next return.
    """

    mean: float
    prior_error: float
    return_variance: float


@runtime_checkable
class Calibration(Protocol):
    """Turns a critic value and the returns seen into a posterior."""

    def posterior(self, value: float, seen: Stats, *, prior_strength: float) -> Posterior:
        """Posterior of V* given V = `value`, counted as `prior_strength` (κ) returns."""
        ...


@dataclass(frozen=True)
class BetaBernoulli:
    """Returns in [0, 1], read as chances of success.

    α = κV + nȳ, β = κ(1 − V) + n(1 − ȳ), μ = α/(κ + n);
    E2 = (V − μ)² + μ(1 − μ)/(κ + n + 1), S2 = μ(1 − μ).
    V and ȳ are clamped to [0, 1]. The sample variance is not read: two equal outcomes do
    not look like certainty.

    >>> BetaBernoulli().posterior(0.5, Stats(1, 1.0), prior_strength=1.0)
    Posterior(mean=0.75, prior_error=0.125, return_variance=0.1875)
    """

    def posterior(self, value: float, seen: Stats, *, prior_strength: float) -> Posterior:
        value, total = _unit(value), prior_strength + seen.count
        mean = (prior_strength * value + seen.count * _unit(seen.mean)) / total
        spread = mean * (1 - mean)
        return Posterior(mean, (value - mean) ** 2 + spread / (total + 1), spread)


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Returns of any size.

    s = max(s², floor) from two returns on, `prior_variance` before; μ = (κV + nȳ)/(κ + n);
    E2 = (V − μ)² + s/(κ + n), S2 = s·(1 + 1/(κ + n)).

    Attributes:
        prior_variance: ≥ 0, in squared return units.
        variance_floor: > 0; equal returns do not look like certainty.

    Raises:
        ConfigError: a variance is outside its range.

    >>> Gaussian().posterior(0.5, Stats(1, 1.0), prior_strength=1.0)
    Posterior(mean=0.75, prior_error=0.1875, return_variance=0.375)
    """

    prior_variance: float = 0.25
    variance_floor: float = 1e-3

    def __post_init__(self) -> None:
        if not (math.isfinite(self.prior_variance) and self.prior_variance >= 0):
            raise ConfigError(f"prior_variance must be >= 0, got {self.prior_variance}")
        if not (math.isfinite(self.variance_floor) and self.variance_floor > 0):
            raise ConfigError(f"variance_floor must be > 0, got {self.variance_floor}")

    def posterior(self, value: float, seen: Stats, *, prior_strength: float) -> Posterior:
        total = prior_strength + seen.count
        variance = self.prior_variance
        if seen.count >= 2:
            variance = max(seen.variance, self.variance_floor)
        mean = (prior_strength * value + seen.count * seen.mean) / total
        return Posterior(mean, (value - mean) ** 2 + variance / total, variance * (1 + 1 / total))


def derivative_gain(
    posterior: Posterior, *, count: int, pending: int, prior_strength: float
) -> float:
    """−dMSE/dn at n + m: (2κ²·E2 + (n + m − κ)·S2)/(κ + n + m)³.

    Pending purchases move only n, so an unmeasured checkpoint at κ = 1 gains 0 when idle
    and 1/32 while one purchase of it is in flight; the two other gains do not do that.

    >>> known = Posterior(0.75, 0.125, 0.1875)
    >>> derivative_gain(known, count=1, pending=0, prior_strength=1.0)
    0.03125
    """
    at = count + pending
    rise = 2 * prior_strength**2 * posterior.prior_error
    return (rise + (at - prior_strength) * posterior.return_variance) / (prior_strength + at) ** 3


def one_step_gain(
    posterior: Posterior, *, count: int, pending: int, prior_strength: float
) -> float:
    """MSE(n + m) − MSE(n + m + 1): the exact drop that one more return brings.

    >>> known = Posterior(0.75, 0.125, 0.1875)
    >>> round(one_step_gain(known, count=1, pending=0, prior_strength=1.0), 5)
    0.02257
    """

    def error(at: int) -> float:
        bias = prior_strength**2 * posterior.prior_error
        return (bias + at * posterior.return_variance) / (prior_strength + at) ** 2

    return error(count + pending) - error(count + pending + 1)


def preposterior_gain(
    posterior: Posterior, *, count: int, pending: int, prior_strength: float
) -> float:
    """Expected drop of the posterior variance of V* by one more return.

    S2/(κ + n + 1)² = Var(μ′), for Beta μ(1 − μ)/(κ + n + 1)². Behind m pending returns,
    averaged over what they may show, it is exactly S2·t/((t + 1)(t + m)(t + m + 1)) with
    t = κ + n, in both models: pending work always lowers it.

    >>> unknown = Posterior(0.5, 0.125, 0.25)
    >>> preposterior_gain(unknown, count=0, pending=0, prior_strength=1.0)
    0.0625
    """
    total = prior_strength + count
    behind = total + pending
    return posterior.return_variance * total / ((total + 1) * behind * (behind + 1))


GAINS = {
    "derivative": derivative_gain,
    "one_step": one_step_gain,
    "preposterior": preposterior_gain,
}
assert tuple(GAINS) == get_args(Gain)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
