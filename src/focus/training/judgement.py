"""The whole judgement of a critic before promotion: the gate, and what else must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from focus.critic.snapshot import Verdict
from focus.errors import SchemaError
from focus.training.bootstrap import ClusterBootstrap
from focus.training.gate import LEAST_SAMPLES, BaseRates, GateReport, GateSample, judge

__all__ = (
    "OVERCONFIDENCE",
    "Bin",
    "Comparison",
    "Estimate",
    "Judgement",
    "Part",
    "Previous",
    "examine",
    "read_judgement",
    "unjudged",
)

OVERCONFIDENCE = 0.02
"""By how much the squared error may exceed what the critic's own values claim."""

_BINS = 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95 % bootstrap interval, clustered by problem."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Part:
    """The critic on some of the checkpoints: all, roots, or those below.

    Attributes:
        samples: checkpoints.
        brier, constant_brier, depth_brier: mean squared errors of the critic, of the fitted
            constant and of the best constant per depth.
        gain: constant_brier − brier.
        bias: mean of V − y; above zero the critic is too hopeful.
        overconfidence: mean of (V − y)² − (V − low)(high − V). A calibrated critic's error
            is its own claim, and this is 0 (below 0 where outcomes lie between the ends);
            above 0 its values are more extreme than outcomes bear out (Spiegelhalter 1986).
    """

    samples: int
    brier: Estimate
    constant_brier: Estimate
    depth_brier: Estimate
    gain: Estimate
    bias: Estimate
    overconfidence: Estimate


@dataclass(frozen=True, kw_only=True)
class Bin:
    """One bar of the reliability diagram: checkpoints of similar prediction."""

    samples: int
    prediction: float
    outcome: Estimate


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Against the snapshot that is current, on the same outcomes.

    Attributes:
        version: the other snapshot.
        steering: it steers now.
        gain: its squared error minus the new critic's; above zero the new one is better.
        gate: the other one's own judgement on these outcomes.
    """

    version: str
    steering: bool
    gain: Estimate
    gate: GateReport


@dataclass(frozen=True, slots=True)
class Previous:
    """The current snapshot: version, whether it steers, its values of the same checkpoints."""

    version: str
    steering: bool
    values: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What `examine` found.

    Attributes:
        verdict: may it steer, and why.
        gate: the comparison with constants (focus.training.gate.judge).
        parts: ``all``, ``root`` and ``inner``, as far as there are samples.
        reliability: bars of about equal weight, by rising prediction.
        previous: against the current snapshot; None if there is none.
        outcomes: where the outcomes came from: rounds, policy versions, what was left out.
    """

    verdict: Verdict
    gate: GateReport
    parts: Mapping[str, Part]
    reliability: tuple[Bin, ...]
    previous: Comparison | None
    outcomes: Mapping[str, Any]

    @property
    def keeps_previous(self) -> bool:
        """Whether the current snapshot should stay current: it may steer on, the new one not."""
        other = self.previous
        holds = other is not None and other.steering and other.gate.passed
        return holds and not self.verdict.steering

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `read_judgement` reads it back."""
        plain = asdict(self)
        plain["reliability"] = list(plain["reliability"])
        return plain


@dataclass(frozen=True)
class _Case:
    """Samples as columns, with one bootstrap for all of them."""

    samples: Sequence[GateSample]
    rates: BaseRates
    value_range: tuple[float, float]
    bootstrap: ClusterBootstrap

    def estimate(self, values: Sequence[float], where: Sequence[bool]) -> Estimate:
        kept = [value for value, keep in zip(values, where, strict=True) if keep]
        low, high = self.bootstrap.interval(values, where=where)
        return Estimate(sum(kept) / len(kept), low, high)

    def errors(self) -> list[float]:
        return [(s.prediction - s.outcome) ** 2 for s in self.samples]

    def part(self, where: Sequence[bool]) -> Part:
        samples, (low, high) = self.samples, self.value_range
        errors = self.errors()
        constant = [(self.rates.constant - s.outcome) ** 2 for s in samples]
        depth = [(self.rates.at(s.depth) - s.outcome) ** 2 for s in samples]
        claims = [(s.prediction - low) * (high - s.prediction) for s in samples]
        return Part(
            samples=sum(where),
            brier=self.estimate(errors, where),
            constant_brier=self.estimate(constant, where),
            depth_brier=self.estimate(depth, where),
            gain=self.estimate([c - e for c, e in zip(constant, errors, strict=True)], where),
            bias=self.estimate([s.prediction - s.outcome for s in samples], where),
            overconfidence=self.estimate(
                [e - c for e, c in zip(errors, claims, strict=True)], where
            ),
        )

    def parts(self) -> dict[str, Part]:
        masks = {
            "all": [True] * len(self.samples),
            "root": [s.depth == 0 for s in self.samples],
            "inner": [s.depth > 0 for s in self.samples],
        }
        return {name: self.part(mask) for name, mask in masks.items() if any(mask)}

    def reliability(self) -> tuple[Bin, ...]:
        predictions = np.array([s.prediction for s in self.samples])
        inner = np.quantile(predictions, np.linspace(0, 1, _BINS + 1)[1:-1])
        which = np.digitize(predictions, np.unique(inner))
        outcomes = [s.outcome for s in self.samples]
        return tuple(
            Bin(
                samples=int(mask.sum()),
                prediction=float(predictions[mask].mean()),
                outcome=self.estimate(outcomes, mask.tolist()),
            )
            for mask in (which == number for number in np.unique(which))
        )


def examine(
    samples: Sequence[GateSample],
    rates: BaseRates,
    *,
    previous: Previous | None = None,
    value_range: tuple[float, float] = (0.0, 1.0),
    least_samples: int = LEAST_SAMPLES,
    outcomes: Mapping[str, Any] | None = None,
) -> Judgement:
    """Judge a critic on fresh outcomes.

    It may steer iff the gate opens (`judge`), it is not shown to be worse than a current
    snapshot that steers, and its squared error is not shown to exceed its own claim by more than
    `OVERCONFIDENCE`. "Shown" means that the whole 95 % interval says so.

    Args:
        samples: fresh checkpoints with outcomes and the critic's values.
        rates: constants fitted on training data.
        previous: the current snapshot, if there is one.
        value_range: of the critic.
        least_samples: fewer never open the gate.
        outcomes: where they came from, plain JSON, kept with the judgement.

    Raises:
        ValueError: no samples, or another number of previous values.

    >>> sure = [GateSample(str(i), 0, 0.9, float(i % 10 < 7)) for i in range(600)]
    >>> examine(sure, BaseRates(0.0)).verdict.steering
    False
    """
    case = _Case(samples, rates, value_range, ClusterBootstrap([s.problem for s in samples]))
    gate = judge(samples, rates, least_samples=least_samples)
    parts = case.parts()
    other = None if previous is None else _compared(case, previous, least_samples=least_samples)
    return Judgement(
        verdict=_verdict(gate, parts["all"], other),
        gate=gate,
        parts=parts,
        reliability=case.reliability(),
        previous=other,
        outcomes=dict(outcomes or {}),
    )


def _compared(case: _Case, previous: Previous, *, least_samples: int) -> Comparison:
    theirs = [
        replace(sample, prediction=value)
        for sample, value in zip(case.samples, previous.values, strict=True)
    ]
    gains = [
        (their.prediction - their.outcome) ** 2 - own
        for their, own in zip(theirs, case.errors(), strict=True)
    ]
    return Comparison(
        version=previous.version,
        steering=previous.steering,
        gain=case.estimate(gains, [True] * len(gains)),
        gate=judge(theirs, case.rates, least_samples=least_samples),
    )


def _verdict(gate: GateReport, whole: Part, previous: Comparison | None) -> Verdict:
    if not gate.passed:
        return Verdict(False, gate.reason)
    if previous is not None and previous.steering and previous.gain.high < 0:
        return Verdict(
            False,
            f"worse than {previous.version} by {-previous.gain.mean:.4f} in squared error "
            f"(95 % interval {-previous.gain.high:.4f} to {-previous.gain.low:.4f})",
        )
    if whole.overconfidence.low > OVERCONFIDENCE:
        return Verdict(
            False,
            f"over-confident: its squared error exceeds its own claim by "
            f"{whole.overconfidence.mean:.4f}, of which {OVERCONFIDENCE:g} is allowed",
        )
    return Verdict(True, gate.reason)


def unjudged(reason: str) -> Verdict:
    """The verdict of a critic that no fresh outcomes were at hand for."""
    return Verdict(False, f"not judged: {reason}")


def read_judgement(plain: Mapping[str, Any], *, where: str) -> Judgement:
    """Inverse of `Judgement.to_dict`.

    Raises:
        SchemaError: another shape.
    """
    try:
        previous = plain["previous"]
        return Judgement(
            verdict=Verdict(**plain["verdict"]),
            gate=GateReport(**plain["gate"]),
            parts={name: _part(part) for name, part in plain["parts"].items()},
            reliability=tuple(
                Bin(**{**entry, "outcome": Estimate(**entry["outcome"])})
                for entry in plain["reliability"]
            ),
            previous=None
            if previous is None
            else Comparison(
                version=previous["version"],
                steering=previous["steering"],
                gain=Estimate(**previous["gain"]),
                gate=GateReport(**previous["gate"]),
            ),
            outcomes=plain["outcomes"],
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise SchemaError(f"{where}: not a judgement of this version: {error!r}") from error


def _part(plain: Mapping[str, Any]) -> Part:
    estimates = {name: Estimate(**value) for name, value in plain.items() if name != "samples"}
    return Part(samples=plain["samples"], **estimates)
