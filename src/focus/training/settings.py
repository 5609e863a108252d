"""Every setting of a training run, and the presets."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus.errors import ConfigError
from focus.records import PACKINGS, Packing

__all__ = (
    "CREDITS",
    "CRITIC_KINDS",
    "PRESETS",
    "SEARCHES",
    "ActorSettings",
    "CriticSettings",
    "GateSettings",
    "TrainSettings",
    "load_settings",
    "settings_from",
)

CRITIC_KINDS = ("network", "surprisal")
CREDITS = ("direct-branch", "lambda")
SEARCHES = ("two-phase", "refine", "cascade", "flat")


@dataclass(frozen=True, kw_only=True)
class ActorSettings:
    """How the policy is updated once per round.

    Attributes:
        learning_rate, weight_decay, betas: AdamW. Small steps want a second beta near 1: it is
            what remembers how large gradients are.
        warmup: optimizer steps until the rate is at its full height; it rises in equal parts.
        step_kl: nats per token that one optimizer step may move the policy by, on the tokens it
            is taken on; a longer one is taken back in part. 0 sets no bound.
        clip_low, clip_high: ε and ε' of the clipped surrogate.
        minibatches: optimizer steps per epoch; prompts are split among them.
        epochs: passes over the round's records.
        grad_norm: gradient norm is clipped to this.
        batch_tokens: padded tokens per forward pass; changes memory, not the gradient.
    """

    learning_rate: float = 5e-5
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    warmup: int = 0
    step_kl: float = 0.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    minibatches: int = 4
    epochs: int = 1
    grad_norm: float = 1.0
    batch_tokens: int = 4096

    def __post_init__(self) -> None:
        _positive(self, "learning_rate", "minibatches", "epochs", "grad_norm", "batch_tokens")
        _in_range(self, "weight_decay", low=0.0)
        _in_range(self, "warmup", low=0)
        _in_range(self, "step_kl", low=0.0)
        _in_range(self, "clip_low", low=0.0, high=1.0)
        _in_range(self, "clip_high", low=0.0)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"betas must be two numbers in [0, 1), got {self.betas}")

    def rate_at(self, step: int) -> float:
        """Learning rate of an optimizer step, the first of the run being 0.

        >>> [round(ActorSettings(learning_rate=0.1, warmup=4).rate_at(k), 3) for k in range(5)]
        [0.025, 0.05, 0.075, 0.1, 0.1]
        """
        return self.learning_rate * min(1.0, (step + 1) / max(1, self.warmup))


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """How the critic is regressed on its targets once per round.

    Attributes:
        kind: ``"network"``, a value model on the policy's backbone, or ``"surprisal"``, a
            logistic regression on the sampled log-probs (docs/concepts/critic.md).
        ridge: penalty on the weights of a surprisal critic; the rest is the network's.
        learning_rate, weight_decay: AdamW.
        steps: optimizer steps per round.
        batch_contexts: contexts per step, at least; whole trees are taken.
        grad_norm: gradient norm is clipped to this.
        count_weight: weight a target by n/(n + count_weight) of its n branches or
            samples; 0 weighs all alike.
        batch_tokens: padded tokens per forward pass.
    """

    kind: str = "network"
    ridge: float = 1.0
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    steps: int = 24
    batch_contexts: int = 256
    grad_norm: float = 1.0
    count_weight: float = 1.0
    batch_tokens: int = 8192

    def __post_init__(self) -> None:
        _one_of(self, "kind", CRITIC_KINDS)
        _positive(self, "learning_rate", "steps", "batch_contexts", "grad_norm", "batch_tokens")
        _positive(self, "ridge")
        _in_range(self, "weight_decay", low=0.0)
        _in_range(self, "count_weight", low=0.0)


def _one_of(settings: Any, name: str, known: Sequence[str]) -> None:
    value = getattr(settings, name)
    if value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def _positive(settings: Any, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} must be > 0 and finite, got {value}")


def _in_range(settings: Any, name: str, *, low: float, high: float = math.inf) -> None:
    value = getattr(settings, name)
    if not (math.isfinite(value) and low <= value <= high):
        raise ConfigError(f"{name} must lie in [{low:g}, {high:g}], got {value}")


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """When a critic may steer search and credit (docs/concepts/critic.md).

    Attributes:
        checkpoints: fresh checkpoints to judge on, ≥ 500 for a judgement that counts.
        every: rounds between judgements.
        confidence_z: normal quantile of the one-sided lower bound.
    """

    checkpoints: int = 800
    every: int = 1
    confidence_z: float = 1.645

    def __post_init__(self) -> None:
        _positive(self, "checkpoints", "every", "confidence_z")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """One training run, start to end.

    Attributes:
        task: ``demo``, ``gym:NAME`` or ``file:PATH``.
        model: ``builtin``, ``smollm2`` or a model folder.
        seed: of everything that is drawn.
        rounds: actor updates; each collects, credits, trains and publishes.
        prompts: problems per round.
        tokens_per_prompt: generation budget of one tree.
        search: ``two-phase``; ``refine``, half the budget for rollouts and half for branches
            where a value is least certain; ``cascade``, at most `concurrency` rollouts in
            lockstep that branch there as they go; ``flat``, rollouts from the prompt only.
        credit: ``direct-branch``, or ``lambda``: generalised advantages with λ = `decay`.
        decay: λ in [0, 1]; how far outcomes count rather than the critic. At 1 values are only
            subtracted; below, their errors are learned from, and a long run can drift.
        concurrency: expansions in flight per tree.
        capacity: requests in flight over all trees.
        temperature: of collection; the actor is trained at the same one.
        packing: ``path``, ``segment`` or ``tree``.
        replay_rounds: rounds of critic targets that one critic update reads.
        pilot_problems: training problems solved once before the first round; their mean
            outcome is the first constant critic.
        eval_problems: held-out problems before and after; each solved once, unbranched.
        keep_trees: trees stored per round.
        actor, critic, gate: settings of the parts.
    """

    task: str = "demo"
    model: str = "builtin"
    seed: int = 0
    rounds: int = 9
    prompts: int = 24
    tokens_per_prompt: int = 640
    search: str = "two-phase"
    credit: str = "direct-branch"
    decay: float = 1.0
    concurrency: int = 4
    capacity: int = 64
    temperature: float = 1.0
    packing: Packing = "path"
    replay_rounds: int = 2
    pilot_problems: int = 64
    eval_problems: int = 800
    keep_trees: int = 4
    actor: ActorSettings = field(default_factory=ActorSettings)
    critic: CriticSettings = field(default_factory=CriticSettings)
    gate: GateSettings = field(default_factory=GateSettings)

    def __post_init__(self) -> None:
        _positive(
            self,
            "rounds",
            "prompts",
            "tokens_per_prompt",
            "concurrency",
            "capacity",
            "temperature",
            "replay_rounds",
            "pilot_problems",
            "eval_problems",
        )
        _one_of(self, "search", SEARCHES)
        _one_of(self, "credit", CREDITS)
        _in_range(self, "decay", low=0.0, high=1.0)
        if self.keep_trees < 0:
            raise ConfigError(f"keep_trees must be >= 0, got {self.keep_trees}")
        if self.packing not in PACKINGS:
            raise ConfigError(f"packing must be one of {', '.join(PACKINGS)}, got {self.packing!r}")

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values; `settings_from` reads them back."""
        return dataclasses.asdict(self)


def settings_from(values: Mapping[str, Any], *, base: TrainSettings | None = None) -> TrainSettings:
    """`base` with the given values, nested tables included.

    Raises:
        ConfigError: an unknown name, or a value of another type.
    """
    settings: TrainSettings = _updated(base or TrainSettings(), values, path="")
    return settings


def _updated(base: Any, values: Mapping[str, Any], *, path: str) -> Any:
    known = {f.name: getattr(base, f.name) for f in dataclasses.fields(base)}
    changes: dict[str, Any] = {}
    for name, value in values.items():
        where = f"{path}{name}"
        if name not in known:
            raise ConfigError(f"unknown setting {where!r}; known: {', '.join(sorted(known))}")
        changes[name] = _converted(known[name], value, where)
    return dataclasses.replace(base, **changes)


def _converted(current: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(current):
        if not isinstance(value, Mapping):
            raise ConfigError(f"setting {where!r} is a table, got {value!r}")
        return _updated(current, value, path=f"{where}.")
    if isinstance(current, tuple) and isinstance(value, list | tuple):
        return tuple(_converted(0.0, item, where) for item in value)
    if isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(current):
        raise ConfigError(f"setting {where!r} wants {type(current).__name__}, got {value!r}")
    return value


def load_settings(path: str | Path, *, base: TrainSettings | None = None) -> TrainSettings:
    """Settings from a TOML file over `base`.

    Raises:
        ConfigError: the file is missing, not TOML, or names an unknown setting.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"config {path}: {error}") from error
    return settings_from(values, base=base)


PRESETS: dict[str, TrainSettings] = {
    "demo": TrainSettings(
        rounds=20,
        prompts=8,
        tokens_per_prompt=75,
        search="cascade",
        concurrency=2,
        credit="lambda",
        replay_rounds=8,
        actor=ActorSettings(learning_rate=5e-5, minibatches=8, grad_norm=10.0),
        critic=CriticSettings(kind="surprisal"),
        gate=GateSettings(every=5),
    ),
    "smoke": TrainSettings(
        rounds=2,
        prompts=4,
        tokens_per_prompt=320,
        pilot_problems=16,
        eval_problems=32,
        gate=GateSettings(checkpoints=64),
        critic=CriticSettings(steps=4),
    ),
}
"""Named starting points: ``demo`` trains the shipped model in minutes, ``smoke`` in seconds."""
