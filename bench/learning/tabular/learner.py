"""Trains the table from actor and critic records, as the local learner trains a network."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np
from bench.learning.tabular.game import (
    Game,
    Table,
    exact_gradient,
    probabilities,
    state_values,
    successes,
)
from bench.learning.tabular.policy import TabularPolicy

from focus.critic import Critic
from focus.errors import ConfigError
from focus.integrations.local.grouping import by_prompt
from focus.records.records import ActorRecord, CriticContext, CriticRecord
from focus.training.settings import ActorSettings

__all__ = ("TabularLearner", "TokenTable", "estimated_gradient", "trained_tokens")

State = tuple[int, int, int]
"""Game, step, wrong steps so far."""


def state_of(game: Game, ids: Sequence[int]) -> State:
    """The state that a prompt with the actions behind it leads to."""
    place = ids[0] - game.actions
    return place, len(ids) - 1, game.wrong_after(place, tuple(ids[1:]))


def trained_tokens(game: Game, record: ActorRecord) -> Iterator[tuple[State, int, float, float]]:
    """State, action, behaviour log-prob and weight of each trained token."""
    ids = record.prefix
    for token, is_trained, log_prob, weight in zip(
        record.response, record.loss_mask, record.log_probs, record.weights, strict=True
    ):
        if is_trained:
            yield state_of(game, ids), token, log_prob, weight
        ids = (*ids, token)


def estimated_gradient(
    game: Game, policy: Table, records: Sequence[ActorRecord], *, clip: tuple[float, float]
) -> Table:
    """Ascent direction of the clipped surrogate, a mean over prompts of sums over tokens.

    At the policy that sampled the records this is mean of Σ A · ∂ log π.
    """
    gradient = np.zeros(game.shape)
    for record in records:
        for state, action, behaviour, weight in trained_tokens(game, record):
            ratio = policy[state][action] / np.exp(behaviour)
            if (weight > 0 and ratio > 1 + clip[1]) or (weight < 0 and ratio < 1 - clip[0]):
                continue
            gradient[state] -= weight * ratio * policy[state]
            gradient[state][action] += weight * ratio
    return gradient / max(1, len(by_prompt(records)))


class TabularLearner:
    """Adam on the table, and a critic that is exact or fitted to the targets of each state.

    Args:
        game: the rules.
        settings: learning rate and its rise, Adam's moments, clipping, optimizer steps per round.

    Raises:
        ConfigError: steps are to be bounded, which no table needs.
    """

    def __init__(self, game: Game, settings: ActorSettings) -> None:
        if settings.step_kl:
            raise ConfigError(
                f"step_kl={settings.step_kl:g}: a table takes whole steps; set it to 0"
            )
        self.game = game
        self.settings = settings
        self.logits = game.starting_logits()
        self.policy = TabularPolicy(game, self.logits)
        self.optimizer_steps = 0
        self._moments = np.zeros(game.shape), np.zeros(game.shape)
        self._values = np.full((game.games, game.horizon, game.worst + 1), 0.5)
        self._critic_version = "critic-0000"

    @property
    def success(self) -> float:
        """Exact mean chance of success of the published policy."""
        return successes(self.game, self.policy.table)

    def gradients(self, records: Sequence[ActorRecord]) -> tuple[Table, Table]:
        """The records' estimate and the true gradient, both at the published policy."""
        table = self.policy.table
        clip = (self.settings.clip_low, self.settings.clip_high)
        return (
            estimated_gradient(self.game, table, records, clip=clip),
            exact_gradient(self.game, table),
        )

    def critic(self) -> Critic:
        game, values = self.game, self._values
        if game.exact_critic:
            values = state_values(game, self.policy.table)

        async def predict(contexts: Sequence[CriticContext]) -> list[float]:
            return [float(values[state_of(game, context.ids or ())]) for context in contexts]

        return Critic.function(predict, version=self._critic_version)

    def update_actor(self, records: Sequence[ActorRecord], *, seed: int) -> dict[str, float]:
        prompts = by_prompt(records)
        random.Random(seed).shuffle(prompts)
        count = self.settings.minibatches
        edges = [round(i * len(prompts) / count) for i in range(count + 1)]
        for start, end in itertools.pairwise(edges):
            if part := [record for group in prompts[start:end] for record in group]:
                self._step(part)
        return {}

    def _step(self, records: Sequence[ActorRecord]) -> None:
        clip = (self.settings.clip_low, self.settings.clip_high)
        policy = probabilities(self.logits)
        gradient = estimated_gradient(self.game, policy, records, clip=clip)
        first, second = self._moments
        rate = self.settings.rate_at(self.optimizer_steps)
        self.optimizer_steps += 1
        for moment, fresh, decay in zip(
            (first, second), (gradient, gradient**2), self.settings.betas, strict=True
        ):
            moment *= decay
            moment += (1 - decay) * fresh
        low, high = (1 - decay**self.optimizer_steps for decay in self.settings.betas)
        step = (first / low) / (np.sqrt(second / high) + 1e-8)
        self.logits = self.logits + rate * step

    def update_critic(self, records: Sequence[CriticRecord], *, seed: int) -> dict[str, float]:
        """V = (Σ n·target + κ·mean) / (Σ n + κ), κ = 4, the mean over games at equal step."""
        counts, sums = np.zeros_like(self._values), np.zeros_like(self._values)
        for record in records:
            state = state_of(self.game, record.context.ids or ())
            counts[state] += record.count
            sums[state] += record.count * record.target
        overall = sums.sum() / max(1.0, counts.sum())
        pooled = (sums.sum(axis=0) + overall) / (counts.sum(axis=0) + 1)
        self._values = (sums + 4 * pooled) / (counts + 4)
        return {}

    def publish(self, round_index: int) -> None:
        self.policy.publish(self.logits, version=f"actor-{round_index + 1:04d}")
        self._critic_version = f"critic-{round_index + 1:04d}"

    async def aclose(self) -> None:
        """Nothing is held."""


class TokenTable:
    """One value per state, moved towards the mean of its targets; a table's token critic.

    Args:
        game: the rules.
        rate: share of the way per update, for a state seen often.
    """

    def __init__(self, game: Game, *, rate: float = 0.5) -> None:
        self.game = game
        self.rate = rate
        self._values = np.full((game.games, game.horizon, game.worst + 1), 0.5)

    def values(self, records: Sequence[ActorRecord]) -> list[list[float]]:
        return [
            [float(self._values[state]) for state, *_ in trained_tokens(self.game, record)]
            for record in records
        ]

    def update(
        self, records: Sequence[ActorRecord], targets: list[list[float]], *, seed: int
    ) -> None:
        counts, sums = np.zeros_like(self._values), np.zeros_like(self._values)
        for record, column in zip(records, targets, strict=True):
            for (state, *_), target in zip(trained_tokens(self.game, record), column, strict=True):
                counts[state] += 1
                sums[state] += target
        means = sums / np.maximum(counts, 1)
        self._values += self.rate * counts / (counts + 2) * (means - self._values)
