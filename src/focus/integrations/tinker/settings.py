"""What a Tinker run decides beside focus.training.settings."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from focus._extras import require
from focus.errors import ConfigError
from focus.training.settings import (
    ActorSettings,
    CriticSettings,
    GateSettings,
    TrainSettings,
)

__all__ = (
    "TINKER_DEFAULTS",
    "LossName",
    "TinkerHost",
    "TinkerSettings",
    "VerdictText",
    "check_settings",
)

LossName = Literal["ppo", "importance_sampling", "cispo"]


@dataclass(frozen=True, kw_only=True)
class VerdictText:
    """What the critic is asked, and its two answers, each one token.

    Attributes:
        question: asked behind the checkpoint, in the model's own chat format.
        suffix: instead of a question: text that is appended as it stands.
        yes, no: the answers.
    """

    question: str = (
        "Will this attempt, carried on from where it stands, end with the right answer? "
        "Reply with yes or no."
    )
    suffix: str | None = None
    yes: str = "yes"
    no: str = "no"


@dataclass(frozen=True, kw_only=True)
class TinkerSettings:
    """How Tinker trains. Rates, clipping and batch sizes stand in TrainSettings.

    Attributes:
        rank: of the actor's and the critic's LoRA; a power of two.
        loss: the actor's; the clipped ones take their thresholds, 1 − clip_low and
            1 + clip_high, from ``TrainSettings.actor``.
        critic_model: base model of the critic; None is the actor's.
        verdict: how the critic is asked.
        adam_eps: of both optimizers.
        keep_s: how long saved states and snapshots are kept, ≥ 3600; None is for ever. Those
            of the last round are kept for ever in any case.
        most_gap: largest mean difference, in nats, between log-probs as sampled and as
            recomputed, before the run refuses to train on them.
    """

    rank: int = 32
    loss: LossName = "ppo"
    critic_model: str | None = None
    verdict: VerdictText = field(default_factory=VerdictText)
    adam_eps: float = 1e-8
    keep_s: int | None = 7 * 24 * 3600
    most_gap: float = 0.05

    def __post_init__(self) -> None:
        if self.rank < 1 or self.rank & (self.rank - 1):
            raise ConfigError(f"rank must be a power of two, got {self.rank}")
        if self.loss not in ("ppo", "importance_sampling", "cispo"):
            raise ConfigError(f"loss must be ppo, importance_sampling or cispo, got {self.loss!r}")
        if self.keep_s is not None and self.keep_s < 3600:
            raise ConfigError(f"keep_s must be at least 3600, got {self.keep_s}")
        for name in ("adam_eps", "most_gap"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} must be > 0 and finite, got {value}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class TinkerHost:
    """Where Tinker is.

    Attributes:
        base_url, api_key: None leaves them to the SDK: ``TINKER_BASE_URL``,
            ``TINKER_API_KEY``, or what ``tinker auth login`` stored.
        tokenizer: the base model's own; None lets the SDK download it.
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    tokenizer: Any = field(default=None, repr=False)

    def service(self) -> Any:
        """A new ``tinker.ServiceClient``; its session begins with the first client made."""
        tinker = require("tinker", extra="tinker")
        return tinker.ServiceClient(base_url=self.base_url, api_key=self.api_key)

    def rest(self) -> Any:
        """A ``tinker.RestClient``: facts about the service, without a session."""
        tinker = require("tinker", extra="tinker")
        return tinker.RestClient(base_url=self.base_url, api_key=self.api_key)


TINKER_DEFAULTS = TrainSettings(
    task="file",
    model="Qwen/Qwen3-4B-Instruct-2507",
    rounds=15,
    prompts=16,
    tokens_per_prompt=16_384,
    capacity=512,
    eval_problems=64,
    actor=ActorSettings(learning_rate=1e-4, minibatches=1),
    critic=CriticSettings(learning_rate=1e-4, steps=4, batch_contexts=512),
    gate=GateSettings(checkpoints=500),
)
"""A starting point for a model of a few billion parameters; not measured there."""


def check_settings(settings: TrainSettings) -> None:
    """Refuse what Tinker cannot do.

    Raises:
        ConfigError: another temperature than 1, several steps per round, or bounded steps.
    """
    if settings.temperature != 1.0:
        raise ConfigError(
            f"temperature {settings.temperature:g}: Tinker's learner takes log-probs at "
            "temperature 1 and has no parameter for another, so that ratios would compare two "
            "laws; collect at temperature 1"
        )
    if settings.actor.minibatches != 1 or settings.actor.epochs != 1:
        raise ConfigError(
            f"actor.minibatches={settings.actor.minibatches}, "
            f"actor.epochs={settings.actor.epochs}: a round is one forward_backward and one "
            "optim_step on Tinker; set both to 1"
        )
    if settings.actor.step_kl:
        raise ConfigError(
            f"actor.step_kl={settings.actor.step_kl:g}: a step that was taken on Tinker can not be "
            "taken back; set it to 0"
        )
