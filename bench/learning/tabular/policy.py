"""A table of logits as a policy: one action a token."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bench.learning.tabular.game import Game, Table, probabilities

from focus.policies.base import RequestTag
from focus.problem import Message
from focus.sampling import Sampling
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("TabularPolicy",)


class TabularPolicy:
    """Ids below `game.actions` are actions, the rest name the game; its state is in the ids.

    Args:
        game: the rules.
        logits: of the policy; copied.
    """

    context_limit = None
    train_temperature = 1.0
    tokenizer_hash = "tabular"

    def __init__(self, game: Game, logits: Table) -> None:
        self.game = game
        self.vocab_size = game.actions + game.games
        self.publish(logits, version="actor-0000")

    def publish(self, logits: Table, *, version: str) -> None:
        """Take new logits."""
        self.version = version
        self.table = probabilities(logits)
        self._rows: list[Any] = self.table.tolist()

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        return (self.game.actions + int(messages[-1].content),)

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        played = "".join(str(token) for token in ids if token < self.game.actions)
        names = [f"<{token - self.game.actions}>" for token in ids if token >= self.game.actions]
        return "".join(names) + played if keep_special else played

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        rng = random.Random(sampling.seed)
        place, played = prefix[0] - self.game.actions, prefix[1:]
        count = sampling.max_tokens or self.game.horizon - len(played)
        wrong = self.game.wrong_after(place, played)
        right = self.game.right_actions[place]
        ids, chances = [], []
        for step in range(len(played), len(played) + count):
            chosen = self._rows[place][step][wrong]
            (action,) = rng.choices(range(self.game.actions), chosen)
            ids.append(action)
            chances.append(chosen[action])
            wrong = self.game.after(wrong, action == right[step])
        return Generation(
            ids=tuple(ids),
            log_probs=tuple(np.log(chances).tolist()),
            finish=FinishReason.LENGTH,
            version=self.version,
            request_id=tag.request if tag else "",
            cached_tokens=len(prefix),
        )
