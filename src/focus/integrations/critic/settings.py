"""Every setting of a critic's training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from focus.errors import ConfigError

__all__ = ("CriticTraining", "Loss", "Precision", "Targets")

Targets = Literal["auto", "recorded", "outcomes"]
Loss = Literal["mse", "bce"]
Precision = Literal["auto", "bf16", "fp32"]


@dataclass(frozen=True, kw_only=True)
class CriticTraining:
    """How a critic is trained in sessions; each session publishes one snapshot.

    Attributes:
        seed: of the split, the order of records and nothing else.
        targets: ``"recorded"``: the record's target (Ḡ of DirectBranchTd). ``"outcomes"``:
            the mean of the suffix outcomes, by their number; records that saw none do not
            count. ``"auto"``: outcomes until a snapshot steers, the recorded ones then.
        count_weight: a target of n branches or outcomes weighs n/(n + count_weight); 0
            weighs all alike. Source: docs/concepts/critic.md, eq. 4.
        loss: squared error, or binary cross-entropy of the target scaled to [0, 1].
        value_clip: the loss is the larger one of V's and of V's clipped to this distance
            from the prediction at collection; None clips nothing. Squared error only.
        passes: most passes over a session's records; each applies every record once.
        patience: passes without a better held-out error before a session stops early.
        replay_rounds: rounds, newest first, that a session reads besides what is new.
        held_out: share of problems, chosen by their keys, that is never trained on.
        learning_rate: peak; None takes 1/√(parameters), 1e-3 at most.
        weight_decay: of AdamW.
        warmup: share of a session's steps over which the rate rises; then it falls as a
            cosine to 0.
        batch_contexts: contexts per step, at least; whole prompts are taken.
        batch_tokens: padded tokens per forward pass; changes memory, not the gradient.
        grad_norm: gradient norm is clipped to this.
        precision: bf16 forward passes (weights stay float32); ``"auto"`` where CUDA has it.
        checkpoint_steps: steps between checkpoints within a pass.
        value_range: of the critic; targets lie in it.
        probes: held contexts that are published with a snapshot.

    Raises:
        ConfigError: a value outside its range, or clipping with cross-entropy.
    """

    seed: int = 0
    targets: Targets = "auto"
    count_weight: float = 1.0
    loss: Loss = "mse"
    value_clip: float | None = None
    passes: int = 4
    patience: int = 1
    replay_rounds: int = 2
    held_out: float = 0.1
    learning_rate: float | None = None
    weight_decay: float = 0.0
    warmup: float = 0.05
    batch_contexts: int = 256
    batch_tokens: int = 8192
    grad_norm: float = 1.0
    precision: Precision = "auto"
    checkpoint_steps: int = 200
    value_range: tuple[float, float] = (0.0, 1.0)
    probes: int = 64

    def __post_init__(self) -> None:
        for name in ("passes", "patience", "batch_contexts", "batch_tokens", "grad_norm"):
            self._require(name, getattr(self, name) > 0, "> 0")
        for name in ("checkpoint_steps", "probes"):
            self._require(name, getattr(self, name) >= 1, ">= 1")
        for name in ("count_weight", "weight_decay", "replay_rounds"):
            self._require(name, getattr(self, name) >= 0, ">= 0")
        self._require("held_out", 0 <= self.held_out < 1, "in [0, 1)")
        self._require("warmup", 0 <= self.warmup <= 1, "in [0, 1]")
        self._require("learning_rate", self.learning_rate is None or self.learning_rate > 0, "> 0")
        self._require("value_clip", self.value_clip is None or self.value_clip > 0, "> 0")
        self._require("value_range", self.value_range[0] < self.value_range[1], "a range")
        for name, known in (("targets", Targets), ("loss", Loss), ("precision", Precision)):
            choices = get_args(known)
            self._require(name, getattr(self, name) in choices, f"one of {', '.join(choices)}")
        if self.value_clip is not None and self.loss != "mse":
            raise ConfigError("value_clip clips squared errors; leave it out with loss 'bce'")

    def _require(self, name: str, holds: bool, expected: str) -> None:
        value = getattr(self, name)
        numbers = value if isinstance(value, tuple) else (value,)
        finite = all(not isinstance(n, float) or math.isfinite(n) for n in numbers)
        if not (holds and finite):
            raise ConfigError(f"{name} must be {expected}, got {value}")

    def peak_rate(self, parameters: int) -> float:
        """The learning rate for a model of that size.

        >>> CriticTraining().peak_rate(900_000), CriticTraining().peak_rate(100_000_000)
        (0.001, 0.0001)
        """
        return self.learning_rate or min(1e-3, 1.0 / math.sqrt(parameters))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "value_range": list(self.value_range)}

    def updated(self, values: Mapping[str, Any]) -> CriticTraining:
        """These settings with the given ones over them.

        Raises:
            ConfigError: an unknown name, or a value of another type or outside its range.

        >>> CriticTraining().updated({"passes": 2, "learning_rate": 1}).learning_rate
        1.0
        """
        known = {field.name: field.type for field in fields(self)}
        changes = {}
        for name, value in values.items():
            if name not in known:
                raise ConfigError(f"unknown setting {name!r}; known: {', '.join(sorted(known))}")
            changes[name] = _of_type(str(known[name]), value, name)
        return replace(self, **changes)


def _of_type(kind: str, value: Any, name: str) -> Any:
    """A TOML value as the type of its field, which is written `kind`."""
    if kind.startswith("float") and type(value) in (int, float):
        return float(value)
    if kind.startswith("tuple") and isinstance(value, list | tuple) and len(value) == 2:
        return tuple(float(end) for end in value)
    is_word = kind in ("Targets", "Loss", "Precision") and isinstance(value, str)
    is_number = kind == "int" and type(value) is int
    is_nothing = kind.endswith("None") and value is None
    if not (is_word or is_number or is_nothing):
        raise ConfigError(f"{name} wants {kind}, got {value!r}")
    return value
