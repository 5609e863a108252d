"""A finite game with a softmax table for a policy; values and gradients by dynamic programming.

In each of `games` games one action per step is right. A state is the game, the step and the
number of wrong steps so far; an episode succeeds if at most `slack` of them are wrong at the
end. With `repair` a right step takes one wrong step back, so that errors can be undone.

    objective  J = mean over games of V(g, 0, 0)
    gradient   dJ/dlogit(s, a) = (1/games) * P(s) * pi(a|s) * (Q(s, a) - V(s))
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from focus.errors import ConfigError

__all__ = ("Game", "Table", "exact_gradient", "probabilities", "state_values", "successes")

Table = npt.NDArray[np.float64]
"""By game, step, wrong steps so far, and for policies action."""


@dataclass(frozen=True, kw_only=True)
class Game:
    """The rules, and how a policy starts.

    Attributes:
        games: prompts.
        horizon: steps per episode.
        actions: choices per step.
        slack: wrong steps that are forgiven.
        repair: a right step takes back a wrong one.
        start: mean chance of the right action at the start.
        segment: steps per edge; divides `horizon`.
        exact_critic: checkpoints are valued exactly, not by a table fitted to targets.
        seed: of the right actions and of the starting policy.

    Raises:
        ConfigError: `segment` does not divide `horizon`.
    """

    games: int = 4
    horizon: int = 12
    actions: int = 4
    slack: int = 2
    repair: bool = False
    start: float = 0.72
    segment: int = 2
    exact_critic: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.horizon % self.segment:
            raise ConfigError(f"{self.segment} does not divide the horizon {self.horizon}")

    @property
    def worst(self) -> int:
        """Wrong steps are counted up to here."""
        return self.slack + (3 if self.repair else 1)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of a policy's table."""
        return self.games, self.horizon, self.worst + 1, self.actions

    @cached_property
    def right_actions(self) -> tuple[tuple[int, ...], ...]:
        """By game and step."""
        rng = random.Random(f"bench/game/{self.seed}")
        return tuple(
            tuple(rng.randrange(self.actions) for _ in range(self.horizon))
            for _ in range(self.games)
        )

    def starting_logits(self) -> Table:
        """Every state prefers the right action, some more than others."""
        rng = np.random.default_rng(self.seed)
        logits = 0.5 * rng.standard_normal(self.shape)
        preference = np.log(self.start * (self.actions - 1) / (1 - self.start))
        for game, row in enumerate(self.right_actions):
            for step, action in enumerate(row):
                logits[game, step, :, action] += preference
        return logits

    def after(self, wrong: int, is_right: bool) -> int:
        """Wrong steps so far, one step later."""
        if not is_right:
            return min(wrong + 1, self.worst)
        return max(0, wrong - 1) if self.repair else wrong

    def wrong_after(self, game: int, actions: tuple[int, ...]) -> int:
        """Wrong steps so far of an episode that began with these actions."""
        wrong, right = 0, self.right_actions[game]
        for step, action in enumerate(actions):
            wrong = self.after(wrong, action == right[step])
        return wrong


def probabilities(logits: Any) -> Table:
    """Softmax over the last axis."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def state_values(game: Game, policy: Table) -> Table:
    """V by game, step and wrong steps; one step more than the policy has."""
    values = np.zeros((game.games, game.horizon + 1, game.worst + 1))
    values[:, -1, : game.slack + 1] = 1.0
    for step in reversed(range(game.horizon)):
        values[:, step] = (policy[:, step] * _action_values(game, values, step)).sum(axis=-1)
    return values


def successes(game: Game, policy: Table) -> float:
    """Exact mean chance of success."""
    return float(state_values(game, policy)[:, 0, 0].mean())


def exact_gradient(game: Game, policy: Table) -> Table:
    """Gradient of `successes` by every logit."""
    values, reach = state_values(game, policy), _reach(game, policy)
    gradient = np.zeros(game.shape)
    for step in range(game.horizon):
        gap = _action_values(game, values, step) - values[:, step, :, None]
        gradient[:, step] = reach[:, step, :, None] * policy[:, step] * gap
    return gradient / game.games


def _action_values(game: Game, values: Table, step: int) -> Table:
    """Q by game, wrong steps and action."""
    found = np.empty((game.games, game.worst + 1, game.actions))
    right = game.right_actions
    for place in range(game.games):
        for wrong in range(game.worst + 1):
            found[place, wrong] = values[place, step + 1, game.after(wrong, False)]
            found[place, wrong, right[place][step]] = values[
                place, step + 1, game.after(wrong, True)
            ]
    return found


def _reach(game: Game, policy: Table) -> Table:
    """Chance that an episode passes a state."""
    reach = np.zeros((game.games, game.horizon + 1, game.worst + 1))
    reach[:, 0, 0] = 1.0
    for place, row in enumerate(game.right_actions):
        for step, action in enumerate(row):
            for wrong in range(game.worst + 1):
                passing, chance = reach[place, step, wrong], policy[place, step, wrong, action]
                reach[place, step + 1, game.after(wrong, True)] += passing * chance
                reach[place, step + 1, game.after(wrong, False)] += passing * (1 - chance)
    return reach
