"""Actor and critic on Tinker, behind the Learner protocol.

Two training clients of one session, each with a LoRA of its own. An update is submitted
whole, forward_backward and optim_step together, and only then awaited. Whatever goes wrong in
between leaves weights that nobody knows: the learner is then spent, and a new one starts
from the last saved state.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.critic import Critic
from focus.errors import FocusError, StoreError, TrainerError
from focus.integrations.local.grouping import by_prompt
from focus.integrations.tinker.critic_data import critic_batches, verdict_data
from focus.integrations.tinker.datums import actor_datum, loss_config
from focus.integrations.tinker.metrics import actor_metrics, critic_metrics
from focus.integrations.tinker.packing import pack_paths
from focus.integrations.tinker.settings import TinkerSettings, check_settings
from focus.integrations.tinker.verdict import Verdict, verdict_critic
from focus.policies.tinker import TinkerPolicy
from focus.records import CriticRecord, PolicyRecord, as_rows
from focus.records.files import read_whole
from focus.records.strict_json import loads
from focus.sampling import derive_seed
from focus.training.settings import TrainSettings

__all__ = ("TinkerLearner",)

_STATE = "tinker.json"
_SCHEMA = "focus.tinker/1"


class TinkerLearner:
    """Trains two LoRAs at Tinker and publishes a snapshot of each between rounds.

    Clients are made on first use. Calls block; the training loop runs them in a thread.

    Args:
        service: a ``tinker.ServiceClient``; borrowed.
        settings, tinker: what to train, and how.
        tokenizer: the base model's own.
        context_limit: of the base model; None when unknown.

    Raises:
        ConfigError: Tinker cannot do what the settings say, or the verdict has no tokens.
    """

    def __init__(
        self,
        service: Any,
        settings: TrainSettings,
        tinker: TinkerSettings,
        *,
        tokenizer: Any,
        context_limit: int | None,
    ) -> None:
        check_settings(settings)
        self._sdk = require("tinker", extra="tinker")
        self._service = service
        self._settings = settings
        self._tinker = tinker
        self._tokenizer = tokenizer
        self._verdict = Verdict.of(tokenizer, tinker.verdict)
        # A checkpoint must leave room for the critic's question.
        self._limit = None if context_limit is None else context_limit - self._verdict.room
        self._critic_model = tinker.critic_model or settings.model
        self._clients: dict[str, Any] = {}
        self._samplers: dict[str, Any] = {}
        self._policy: TinkerPolicy | None = None
        self._critic: Critic | None = None
        self._version = 0
        self._steps = 0
        self._paths: dict[str, str] = {}
        self._failure: BaseException | None = None

    def open(self) -> None:
        """Make the first samplers now: that blocks, so not in an event loop.

        Raises:
            TrainerError: Tinker gave none.
        """
        for role in ("actor", "critic"):
            self._sampler(role)

    @property
    def policy(self) -> TinkerPolicy:
        """The actor's snapshot last published."""
        if self._policy is None:
            self._policy = TinkerPolicy(
                self._sampler("actor"),
                version=f"actor-{self._version:04d}",
                tokenizer=self._tokenizer,
                context_limit=self._limit,
            )
        return self._policy

    @property
    def optimizer_steps(self) -> int:
        return self._steps

    @property
    def paths(self) -> Mapping[str, str]:
        """Where the last published weights are: state and sampler, of actor and critic."""
        return dict(self._paths)

    def critic(self) -> Critic:
        """The critic's snapshot last published."""
        if self._critic is None:
            self._critic = verdict_critic(
                self._sampler("critic"), self._verdict, version=f"critic-{self._version:04d}"
            )
        return self._critic

    def update_actor(self, records: Sequence[PolicyRecord], *, seed: int) -> Mapping[str, float]:
        """One forward_backward and one optim_step, submitted together.

        A round whose advantages are all 0 has nothing to send and takes no step.

        Raises:
            TrainerError: it failed; the weights are unknown.
        """
        samples = as_rows(records)
        rows = pack_paths(samples)
        actor = self._settings.actor
        rate = actor.rate_at(self._steps)
        if not rows:
            return actor_metrics((), None, actor, rate=rate)
        prompts = len(by_prompt(samples))
        data = [actor_datum(row, prompts=prompts) for row in rows]
        with self._trusted("the actor's update"):
            client = self._client("actor")
            submitted = client.forward_backward(
                data, self._tinker.loss, loss_config(self._tinker.loss, actor)
            )
            step = client.optim_step(
                self._sdk.AdamParams(
                    learning_rate=rate,
                    beta1=actor.betas[0],
                    beta2=actor.betas[1],
                    eps=self._tinker.adam_eps,
                    weight_decay=actor.weight_decay,
                    grad_clip_norm=actor.grad_norm,
                )
            )
            output, stepped = submitted.result(), step.result()
            self._steps += 1
            return actor_metrics(rows, output, actor, step=stepped, rate=rate)

    def update_critic(self, records: Sequence[CriticRecord], *, seed: int) -> Mapping[str, float]:
        """``critic.steps`` steps over the records, all submitted before the first is awaited.

        Raises:
            TrainerError: it failed; the weights are unknown.
        """
        if not records:
            return critic_metrics((), ())
        critic = self._settings.critic
        batches = list(critic_batches(records, critic, seed=seed))
        data = [
            verdict_data(batch, self._verdict, count_weight=critic.count_weight)
            for batch in batches
        ]
        adam = self._sdk.AdamParams(
            learning_rate=critic.learning_rate,
            eps=self._tinker.adam_eps,
            weight_decay=critic.weight_decay,
            grad_clip_norm=critic.grad_norm,
        )
        with self._trusted("the critic's update"):
            client = self._client("critic")
            submitted = []
            for batch in data:
                submitted.append(client.forward_backward(batch, "cross_entropy"))
                submitted.append(client.optim_step(adam))
            outputs = [future.result() for future in submitted]
        return critic_metrics(batches, outputs[::2])

    def publish(self, round_index: int) -> None:
        """Save both models, resumable and for sampling, and sample from those from now on.

        Raises:
            TrainerError: it failed; the round cannot count.
        """
        name = f"round-{round_index:04d}-{secrets.token_hex(4)}"
        is_last = round_index == self._settings.rounds - 1
        keep_s = None if is_last else self._tinker.keep_s
        with self._trusted("publishing"):
            saved = {}
            for role in ("critic", "actor"):
                client = self._client(role)
                saved[f"{role}_state"] = client.save_state(name, ttl_seconds=keep_s)
                saved[f"{role}_sampler"] = client.save_weights_for_sampler(name, ttl_seconds=keep_s)
            self._paths = {kind: future.result().path for kind, future in saved.items()}
            self._open_samplers()
        self._version = round_index + 1

    def save(self, folder: Path) -> None:
        """Where the published state is; the weights themselves stay with Tinker."""
        state = {
            "schema": _SCHEMA,
            "model": self._settings.model,
            "tinker": self._tinker.to_dict(),
            "version": self._version,
            "optimizer_steps": self._steps,
            "paths": self._paths,
        }
        text = json.dumps(state, indent=2, sort_keys=True)
        (folder / _STATE).write_text(f"{text}\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote: weights, Adam's moments, and the snapshots.

        Raises:
            StoreError: it is missing, damaged, or of a run with other settings.
            TrainerError: Tinker does not have those states any more.
        """
        path = folder / _STATE
        state: Any = loads(read_whole(path), where=str(path))
        wanted = {"schema": _SCHEMA, "model": self._settings.model}
        told = json.loads(json.dumps(self._tinker.to_dict()))
        for name, value in {**wanted, "tinker": told}.items():
            if state.get(name) != value:
                raise StoreError(f"{path}: {name} is {state.get(name)!r}, this run has {value!r}")
        self._paths = dict(state["paths"])
        with self._trusted("restoring saved states"):
            made = {
                role: self._service.create_training_client_from_state_with_optimizer(
                    self._paths[f"{role}_state"]
                )
                for role in ("actor", "critic")
            }
            self._clients = {role: future.result() for role, future in made.items()}
            self._open_samplers()
        self._version = int(state["version"])
        self._steps = int(state["optimizer_steps"])

    def export(self, folder: Path) -> None:
        """A note of where the policy's weights are: Tinker keeps them."""
        facts = {
            "schema": _SCHEMA,
            "base_model": self._settings.model,
            "sampler_path": self._paths.get("actor_sampler"),
            "state_path": self._paths.get("actor_state"),
        }
        (folder / _STATE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def _client(self, role: str) -> Any:
        if role not in self._clients:
            self._clients[role] = self._service.create_lora_training_client(
                self._base(role),
                rank=self._tinker.rank,
                seed=derive_seed(self._settings.seed, "lora", role),
            ).result()
        return self._clients[role]

    def _base(self, role: str) -> str:
        return self._settings.model if role == "actor" else self._critic_model

    def _sampler(self, role: str) -> Any:
        """The published snapshot; before the first, the base model, which a LoRA starts as."""
        if role not in self._samplers:
            with self._trusted("a sampling client"):
                self._samplers[role] = self._service.create_sampling_client(
                    base_model=self._base(role)
                ).result()
        return self._samplers[role]

    def _open_samplers(self) -> None:
        made = {
            role: self._service.create_sampling_client(model_path=self._paths[f"{role}_sampler"])
            for role in ("actor", "critic")
        }
        self._samplers = {role: future.result() for role, future in made.items()}
        self._policy = self._critic = None

    @contextmanager
    def _trusted(self, what: str) -> Iterator[None]:
        """After one failure nothing of this learner may be used: who knows what was applied."""
        if self._failure is not None:
            raise TrainerError(f"{what}: this learner failed before") from self._failure
        try:
            yield
        except FocusError:
            raise
        except BaseException as error:
            self._failure = error
            if not isinstance(error, Exception):
                raise
            raise TrainerError(
                f"{what} failed at Tinker ({type(error).__name__}: {error}). Its weights are "
                "unknown now; the round does not count. Resume: it goes on from the last round "
                "that does"
            ) from error
