"""Parts that raise at their n-th call, for every n there is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from focus.agent import Segments
from focus.critic import Critic
from focus.problem import Problem
from focus.records.records import CriticContext
from focus.testing.envs import LiveEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tokens import Generation

__all__ = (
    "Fuse",
    "FusedEnv",
    "FusedGate",
    "FusedPolicy",
    "FusedSegments",
    "causes",
    "fused_critic",
)


class Fuse:
    """Raises at the n-th of all calls that pass it, and notes when."""

    def __init__(self, n: int, error: Callable[[], BaseException]) -> None:
        self.calls = 0
        self.n = n
        self.error = error()
        self.blown_at_s = math.inf

    @property
    def blown(self) -> bool:
        return self.calls >= self.n

    def burn(self) -> None:
        self.calls += 1
        if self.calls == self.n:
            self.blown_at_s = time.monotonic()
            raise self.error


class FusedEnv(LiveEnv):
    """A live environment with a fuse; a call that fails has no effect but for a release."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self._fuse = fuse

    async def reset(self, problem: Problem) -> Any:
        self._fuse.burn()
        return await super().reset(problem)

    async def fork(self, state: Any) -> Any:
        self._fuse.burn()
        return await super().fork(state)

    async def step(self, *args: Any) -> Any:
        self._fuse.burn()
        return await super().step(*args)

    async def finish(self, *args: Any) -> Any:
        self._fuse.burn()
        return await super().finish(*args)

    async def release(self, state: Any) -> None:
        await super().release(state)
        self._fuse.burn()


class FusedPolicy(ScriptedPolicy):
    """A walker; one fuse for its requests, one for its decoding."""

    def __init__(self, fuse: Fuse, decode_fuse: Fuse) -> None:
        super().__init__(walk_script(7))
        self._fuse = fuse
        self._decode_fuse = decode_fuse

    async def generate(self, *args: Any, **options: Any) -> Any:
        self._fuse.burn()
        return await super().generate(*args, **options)

    def decode(self, *args: Any, **options: Any) -> str:
        self._decode_fuse.burn()
        return super().decode(*args, **options)


@dataclass(frozen=True)
class FusedSegments(Segments):
    """A parser with a fuse."""

    fuse: Fuse = field(kw_only=True)

    def action(self, generation: Generation, text: str) -> Any:
        self.fuse.burn()
        return super().action(generation, text)


def fused_critic(fuse: Fuse) -> Critic:
    """A critic of heights with a fuse."""

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        fuse.burn()
        return [0.5 + 0.02 * (c.text.count("+") - c.text.count("-")) for c in contexts]

    return Critic.function(predict, version="fused")


class FusedGate:
    """A search whose own code fails in the middle of a collection."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def admits(self, *, children: int, pending: int) -> bool:
        self._fuse.burn()
        return pending < 2


def causes(error: BaseException | None) -> list[BaseException]:
    """An error and the errors it was raised from."""
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found
