"""Values of one tree's checkpoints: asked for while their expansions go on, each context once."""

from __future__ import annotations

import hashlib

import anyio

from focus.checkpoint import Checkpoint
from focus.critic import Critic, render_context
from focus.policies.base import Policy
from focus.records.records import CriticContext

__all__ = ("Valuer",)


class Valuer:
    """One critic on one tree.

    Two checkpoints that look the same to the critic (siblings that drew the same ids) are
    predicted once. Contexts are remembered by digest: a tree's memory stays proportional to
    its distinct tokens.

    Attributes:
        fixed_value: of a constant critic, which is never asked.
        calls: contexts sent to the critic.
    """

    def __init__(self, critic: Critic, policy: Policy) -> None:
        self._critic = critic
        self._policy = policy
        self._values: dict[bytes, float] = {}
        self._asked: dict[bytes, anyio.Event] = {}
        self.fixed_value: float | None = critic.fixed_value
        self.calls = 0

    def context(self, checkpoint: Checkpoint) -> CriticContext:
        """The checkpoint as the critic sees it."""
        return render_context(self._critic.renderer, self._policy, checkpoint)

    async def value(self, checkpoint: Checkpoint) -> float:
        """V of a checkpoint that did not end its episode.

        Raises:
            CriticError, FatalError: as :meth:`focus.critic.Critic.score`.
        """
        if self.fixed_value is not None:
            return self.fixed_value
        context = self.context(checkpoint)
        key = hashlib.blake2b(repr(context).encode(), digest_size=16).digest()
        while (value := self._values.get(key)) is None:
            if key in self._asked:
                await self._asked[key].wait()
            else:
                await self._ask(key, context)
        return value

    async def _ask(self, key: bytes, context: CriticContext) -> None:
        answered = self._asked[key] = anyio.Event()
        self.calls += 1
        try:
            (self._values[key],) = await self._critic.score([context])
        finally:
            del self._asked[key]
            answered.set()
