"""May the critic steer? Judged on fresh problems and fresh outcomes against a constant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ("BaseRates", "GateReport", "GateSample", "judge")

LEAST_SAMPLES = 500
"""Fewer checkpoints than this never open the gate (docs/concepts/critic.md)."""


@dataclass(frozen=True, slots=True)
class GateSample:
    """One checkpoint of a problem that neither model trained on.

    Attributes:
        problem: key of the problem; samples of one problem are not independent.
        depth: edges from the root.
        prediction: critic's V.
        outcome: of one unbranched continuation by the current actor.
    """

    problem: str
    depth: int
    prediction: float
    outcome: float


@dataclass(frozen=True)
class BaseRates:
    """Outcome means fitted on training data, to beat.

    Attributes:
        constant: best constant.
        by_depth: best constant per depth, so that "depth only" cannot pass as a critic.
    """

    constant: float
    by_depth: Mapping[int, float] = field(default_factory=dict)

    def at(self, depth: int) -> float:
        return self.by_depth.get(depth, self.constant)


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """The judgement and the numbers behind it.

    Attributes:
        passed: the critic may steer.
        reason: why, in words.
        samples, problems: how much it was judged on.
        critic_brier, constant_brier, depth_brier: mean squared errors against outcomes.
        constant: the constant it was compared with.
        gain: constant_brier − critic_brier.
        gain_lower: one-sided lower bound of the gain, clustered by problem.
        hindsight_lower: the same against the mean outcome of these very samples.
        mean_prediction, mean_outcome: calibration in the large.
    """

    passed: bool
    reason: str
    samples: int
    problems: int
    critic_brier: float
    constant_brier: float
    depth_brier: float
    constant: float
    gain: float
    gain_lower: float
    hindsight_lower: float
    mean_prediction: float
    mean_outcome: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge(
    samples: Sequence[GateSample],
    rates: BaseRates,
    *,
    z: float = 1.645,
    least_samples: int = LEAST_SAMPLES,
) -> GateReport:
    """Compare a critic with the best constant on fresh outcomes.

    Opens iff the lower bound of mean[(c − y)² − (V − y)²] is > 0 on at least
    `least_samples` checkpoints, both for the fitted c and for c = ȳ. The latter is the best
    constant in hindsight: where outcomes have drifted since c was fitted, any constant
    nearer to them would beat c, and no constant may pass as a critic. The bound is
    mean − z · SE with the SE clustered by problem:
    SE² = G/(G−1) · Σ_g (Σ_{i∈g} (d_i − d̄))² / n².

    >>> good = [GateSample(str(i), 0, float(i % 2), float(i % 2)) for i in range(600)]
    >>> judge(good, BaseRates(0.5)).passed
    True
    >>> judge(good[:100], BaseRates(0.5)).reason
    'judged on 100 checkpoints; at least 500 are needed'
    """
    count = len(samples)
    if count == 0:
        raise ValueError("no samples to judge a critic on")
    mean_outcome = sum(s.outcome for s in samples) / count
    critic = [(s.prediction - s.outcome) ** 2 for s in samples]
    constant = [(rates.constant - s.outcome) ** 2 for s in samples]
    depth = [(rates.at(s.depth) - s.outcome) ** 2 for s in samples]
    hindsight = [(mean_outcome - s.outcome) ** 2 for s in samples]
    problems = [s.problem for s in samples]
    lower = _lower_bound(problems, constant, critic, z=z)
    hindsight_lower = _lower_bound(problems, hindsight, critic, z=z)
    passed = count >= least_samples and lower > 0 and hindsight_lower > 0
    return GateReport(
        passed=passed,
        reason=_reason(count, least_samples, lower, hindsight_lower),
        samples=count,
        problems=len(set(problems)),
        critic_brier=sum(critic) / count,
        constant_brier=sum(constant) / count,
        depth_brier=sum(depth) / count,
        constant=rates.constant,
        gain=(sum(constant) - sum(critic)) / count,
        gain_lower=lower,
        hindsight_lower=hindsight_lower,
        mean_prediction=sum(s.prediction for s in samples) / count,
        mean_outcome=mean_outcome,
    )


def _reason(count: int, least: int, lower: float, hindsight_lower: float) -> str:
    if count < least:
        return f"judged on {count} checkpoints; at least {least} are needed"
    if lower <= 0:
        return f"not shown to beat the best constant (lower bound {lower:.4f})"
    if hindsight_lower <= 0:
        return (
            "outcomes have drifted, and it is not shown to beat the best constant in hindsight "
            f"(lower bound {hindsight_lower:.4f})"
        )
    return f"beats the best constant by at least {lower:.4f} in squared error"


def _lower_bound(
    groups: Sequence[str], constant: Sequence[float], critic: Sequence[float], *, z: float
) -> float:
    gains = [c - v for c, v in zip(constant, critic, strict=True)]
    return sum(gains) / len(gains) - z * _clustered_error(groups, gains)


def _clustered_error(groups: Sequence[str], values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    sums: dict[str, float] = {}
    for group, value in zip(groups, values, strict=True):
        sums[group] = sums.get(group, 0.0) + value - mean
    clusters = len(sums)
    if clusters < 2:
        return math.inf
    spread = sum(total**2 for total in sums.values()) * clusters / (clusters - 1)
    return math.sqrt(spread) / len(values)
