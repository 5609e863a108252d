"""A critic without a network: logistic regression on how surprised the policy was by itself.

The sampled log-probs of a partial solution say much about how it will end: a guess, a slip or
a change of mind costs probability where it happens. They are known exactly and for nothing,
and nine numbers made of them need tens of trees where a value network needs hundreds. So this
critic can steer from the first rounds on, with any trainer, and costs no forward pass.

    V(h) = low + (high − low) · sigmoid(b + Σ_i w_i · (x_i − m_i) / s_i)

x is the profile of the context's sampled tokens, m and s its mean and spread in training, w and
b minimise Σ n · cross-entropy(target, V) + ridge · |w|², n the samples behind a target.

What it cannot see: anything that the policy is sure of. A policy that is confidently wrong
looks like one that is right; the gate judges whether V beats a constant all the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from focus.errors import ConfigError, CriticError, SchemaError, StoreError
from focus.records.files import read_whole, write_whole
from focus.records.records import CriticContext, CriticRecord
from focus.records.strict_json import dumps, loads

__all__ = ("PROFILE", "SURPRISAL", "SurprisalModel", "surprisal_profile")

SURPRISAL = "surprisal/1"
"""Name and version of the rendering: the profile as a JSON list of numbers."""

PROFILE = (
    "largest",
    "second",
    "third",
    "total",
    "mean",
    "tokens",
    "above_3",
    "above_1",
    "capped_total",
)
"""What the numbers of a profile are; surprisals in nats, `tokens` in hundreds."""

_SCHEMA = "focus.surprisal_critic/1"
_VECTORS = ("weights", "centre", "spread")
_STEPS = 30
_LEAST_SPREAD = 1e-3


def surprisal_profile(log_probs: Sequence[float]) -> tuple[float, ...]:
    """Nine numbers about −log p of the sampled tokens; all 0 before the first.

    Non-finite log-probs are left out: they say nothing.

    >>> dict(zip(PROFILE, surprisal_profile([-0.5, -4.0, -1.5]), strict=True))["largest"]
    4.0
    """
    surprisals = sorted((-value for value in log_probs if math.isfinite(value)), reverse=True)
    first, second, third = (*surprisals[:3], 0.0, 0.0, 0.0)[:3]
    total = math.fsum(surprisals)
    return (
        first,
        second,
        third,
        total,
        total / max(1, len(surprisals)),
        len(surprisals) / 100,
        float(sum(value > 3 for value in surprisals)),
        float(sum(value > 1 for value in surprisals)),
        math.fsum(min(value, 2.0) for value in surprisals),
    )


@dataclass(frozen=True, kw_only=True)
class SurprisalModel:
    """Values of checkpoints from the profile of their sampled tokens.

    Attributes:
        version: names the snapshot.
        weights: per number of the profile, after centring and scaling.
        bias: log-odds of an average context.
        centre, spread: mean and deviation of the profile in training.
        value_range: lowest and highest value.

    >>> model = SurprisalModel.constant(0.25, version="start")
    >>> context = CriticContext(renderer="surprisal/1", text=json.dumps([0.0] * 9))
    >>> round(model.predict([context])[0], 6)
    0.25
    """

    version: str
    weights: tuple[float, ...] = (0.0,) * len(PROFILE)
    bias: float = 0.0
    centre: tuple[float, ...] = (0.0,) * len(PROFILE)
    spread: tuple[float, ...] = (1.0,) * len(PROFILE)
    value_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        for name in ("weights", "centre", "spread"):
            numbers = getattr(self, name)
            if len(numbers) != len(PROFILE) or not all(map(math.isfinite, numbers)):
                raise ConfigError(f"{name} must be {len(PROFILE)} finite numbers, got {numbers}")

    @property
    def renderer(self) -> str:
        return SURPRISAL

    @classmethod
    def constant(cls, value: float, *, version: str) -> SurprisalModel:
        """Knows nothing yet: `value`, in (0, 1), for every context."""
        clipped = min(1 - 1e-4, max(1e-4, value))
        return cls(version=version, bias=math.log(clipped / (1 - clipped)))

    def predict(self, contexts: Sequence[CriticContext]) -> list[float]:
        """One value per context.

        Raises:
            CriticError: a context is not a profile.
        """
        low, high = self.value_range
        return [low + (high - low) * _sigmoid(self._logit(_read(c))) for c in contexts]

    def save(self, path: Path) -> None:
        """Write the numbers as JSON."""
        data = dumps({"schema": _SCHEMA, **asdict(self)}, what="surprisal critic")
        write_whole(path, data, overwrite=True)

    @classmethod
    def load(cls, path: Path) -> SurprisalModel:
        """Read what `save` wrote.

        Raises:
            StoreError: it is missing, damaged or of another schema.
        """
        try:
            stored = loads(read_whole(path), where=str(path))
            if stored.pop("schema") != _SCHEMA:
                raise ValueError("another schema")
            for name in (*_VECTORS, "value_range"):
                stored[name] = tuple(map(float, stored[name]))
            return cls(**stored)
        except (AttributeError, KeyError, TypeError, ValueError, ConfigError, SchemaError) as error:
            raise StoreError(f"{path}: not a surprisal critic of this version: {error}") from error

    def fitted(
        self, records: Sequence[CriticRecord], *, version: str, ridge: float = 1.0
    ) -> SurprisalModel:
        """The minimum over `records`, by Newton's method from scratch; `self` gives the range.

        Raises:
            CriticError: a context is not a profile, or there are no records.
        """
        import numpy as np

        if not records:
            raise CriticError(f"critic {version}: no records to fit")
        low, high = self.value_range
        profiles = np.array([_read(record.context) for record in records])
        targets = np.array([(record.target - low) / (high - low) for record in records])
        counts = np.array([float(record.count) for record in records])
        centre, spread = profiles.mean(axis=0), profiles.std(axis=0) + _LEAST_SPREAD
        inputs = np.column_stack([(profiles - centre) / spread, np.ones(len(records))])
        solution = _newton(inputs, targets.clip(0.0, 1.0), counts, ridge)
        return SurprisalModel(
            version=version,
            weights=tuple(map(float, solution[:-1])),
            bias=float(solution[-1]),
            centre=tuple(map(float, centre)),
            spread=tuple(map(float, spread)),
            value_range=self.value_range,
        )

    def _logit(self, profile: Sequence[float]) -> float:
        columns = zip(self.weights, profile, self.centre, self.spread, strict=True)
        return self.bias + math.fsum(w * (x - m) / s for w, x, m, s in columns)


def _read(context: CriticContext) -> tuple[float, ...]:
    """The profile in a rendered context.

    Raises:
        CriticError: it is of another renderer, or not a list of that many finite numbers.
    """
    if context.renderer == SURPRISAL:
        try:
            profile = tuple(map(float, json.loads(context.text)))
        except (TypeError, ValueError):
            profile = ()
        if len(profile) == len(PROFILE) and all(map(math.isfinite, profile)):
            return profile
    raise CriticError(
        f"a surprisal critic reads {len(PROFILE)} numbers of {SURPRISAL!r}, got "
        f"{context.renderer!r}: {context.text[:80]!r}"
    )


def _sigmoid(logit: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * logit))


def _newton(inputs: Any, targets: Any, counts: Any, ridge: float) -> Any:
    """Weights [features + 1] of least penalised cross-entropy; the last one, the bias, is free."""
    import numpy as np

    penalty = np.full(inputs.shape[1], 2.0 * ridge)
    penalty[-1] = 1e-3
    solution = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        chances = 0.5 * (1.0 + np.tanh(0.5 * inputs @ solution))
        slope = inputs.T @ (counts * (chances - targets)) + penalty * solution
        curvature = (inputs * (counts * chances * (1 - chances))[:, None]).T @ inputs
        step = np.linalg.solve(curvature + np.diag(penalty), slope)
        solution = solution - step
        if float(np.abs(step).max()) < 1e-9:
            break
    return solution
