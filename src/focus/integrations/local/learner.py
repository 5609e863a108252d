"""Actor, critic and sampling engine of one process, behind the Learner protocol."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from focus.critic import Critic
from focus.critic.local import ValueModel
from focus.integrations.local.actor import ActorTrainer
from focus.integrations.local.critic import CriticTrainer
from focus.integrations.local.surprisal import SurprisalTrainer
from focus.models import resolve
from focus.models.weights import stored_weights
from focus.policies.transformers import TransformersPolicy
from focus.records import CriticRecord, PolicyRecord
from focus.training.settings import TrainSettings

__all__ = ("LocalLearner",)

_FACTS = "learner.json"


class LocalLearner:
    """Samples with one copy of the model, trains another, publishes between rounds.

    A critic of kind ``"network"`` starts from the policy's own backbone with a fresh head,
    and is trained apart from it; one of kind ``"surprisal"`` is fitted. ``async with`` (or
    `aclose`) stops the sampling engine.

    Args:
        settings: model, temperature, batch sizes, learning rates.
        device: ``"cpu"``, ``"cuda"``; None takes the GPU when there is one.
        profile: how messages become prompt ids.

    Raises:
        ConfigError: the model folder cannot be used.
    """

    def __init__(
        self,
        settings: TrainSettings,
        *,
        device: str | None = None,
        profile: str = "token_chunk",
    ) -> None:
        self._policy = TransformersPolicy(
            settings.model,
            device=device,
            dtype="float32",
            max_batch=settings.capacity,
            version="actor-0000",
            train_temperature=settings.temperature,
            profile=profile,
        )
        self._actor = ActorTrainer(copy.deepcopy(self._policy.model), settings.actor)
        self._critic = self._critic_trainer(settings)

    def _critic_trainer(self, settings: TrainSettings) -> CriticTrainer | SurprisalTrainer:
        if settings.critic.kind == "surprisal":
            return SurprisalTrainer(settings.critic, version="critic-0000")
        model = ValueModel.from_pretrained(
            resolve(settings.model),
            version="critic-0000",
            tokenizer_hash=self._policy.tokenizer_hash,
        )
        model.to(self._policy.model.device)
        return CriticTrainer(model, settings.critic)

    @property
    def policy(self) -> TransformersPolicy:
        return self._policy

    @property
    def optimizer_steps(self) -> int:
        return self._actor.steps

    def critic(self) -> Critic:
        return Critic.local(self._critic.model)

    def update_actor(self, records: Sequence[PolicyRecord], *, seed: int) -> Mapping[str, float]:
        return self._actor.update(records, seed=seed)

    def update_critic(self, records: Sequence[CriticRecord], *, seed: int) -> Mapping[str, float]:
        return self._critic.update(records, seed=seed)

    def publish(self, round_index: int) -> None:
        self._policy.update_weights(
            self._actor.model.state_dict(), version=f"actor-{round_index + 1:04d}"
        )
        self._critic.publish(f"critic-{round_index + 1:04d}")

    def save(self, folder: Path) -> None:
        for name, trainer in (("actor", self._actor), ("critic", self._critic)):
            (folder / name).mkdir()
            trainer.save(folder / name)
        facts = {"policy_version": self._policy.version}
        (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")

    def load(self, folder: Path) -> None:
        self._actor.load(folder / "actor")
        self._critic.load(folder / "critic")
        with stored_weights(folder):
            version = json.loads((folder / _FACTS).read_text(encoding="utf-8"))["policy_version"]
        self._policy.update_weights(self._actor.model.state_dict(), version=version)

    def export(self, folder: Path) -> None:
        self._policy.model.save_pretrained(folder)
        self._policy.tokenizer.save_pretrained(folder)

    async def aclose(self) -> None:
        """Stop the sampling engine."""
        await self._policy.aclose()
