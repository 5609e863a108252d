"""Faults of what is no server: the critic, the grader and the environment."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from focus.agent import StepResult
from focus.critic import Critic
from focus.records.records import CriticContext
from focus.testing.envs import Handle, LiveEnv

__all__ = ("CRITIC_FAULTS", "ENV_FAULTS", "FaultyEnv", "faulty_critic", "value_of")

_NAN = float("nan")


def value_of(context: CriticContext) -> float:
    """What the honest critic says: higher is better, all bits in use."""
    return 0.5 + (context.text.count("+") - context.text.count("-")) / 97.0


async def _silent(values: list[float]) -> Any:
    await anyio.sleep_forever()


async def _raises(values: list[float]) -> Any:
    raise RuntimeError("the critic broke")


def _said(change: Callable[[list[float]], Any]) -> Callable[[list[float]], Any]:
    async def answer(values: list[float]) -> Any:
        return change(values)

    return answer


CRITIC_FAULTS: Mapping[str, Callable[[list[float]], Any]] = {
    "critic_timeout": _silent,
    "critic_raises": _raises,
    "critic_nan": _said(lambda values: [_NAN] * len(values)),
    "critic_none": _said(lambda values: [None] * len(values)),
    "critic_out_of_range": _said(lambda values: [value + 7.0 for value in values]),
    "critic_one_short": _said(lambda values: values[1:]),
    "critic_one_more": _said(lambda values: [*values, 0.5]),
    "critic_lists": _said(lambda values: [[value] for value in values]),
    "critic_no_list": _said(lambda values: 0.5),
}
"""What a critic gives instead of one value per context, by name.

Values out of order cannot be told from right ones by who receives them: the critic's own
protocol has to name what it answers (:mod:`focus.critic`).
"""


def faulty_critic(
    name: str | None = None, *, share: float = 1.0, seed: int = 0, deadline_s: float = 0.2
) -> Critic:
    """A critic of walks; `share` of its calls go wrong, in the way named or in any way."""
    rng = random.Random(f"{seed}/critic")

    async def predict(contexts: Sequence[CriticContext]) -> Sequence[float]:
        values = [value_of(context) for context in contexts]
        if rng.random() >= share:
            return values
        broken: Sequence[float] = await CRITIC_FAULTS[name or rng.choice(sorted(CRITIC_FAULTS))](
            values
        )
        return broken

    return Critic.function(predict, version="walk-1", deadline_s=deadline_s)


async def _hangs(result: StepResult) -> StepResult:
    await anyio.sleep_forever()
    return result


async def _breaks(result: StepResult) -> StepResult:
    raise RuntimeError("the sandbox broke")


def _scored(reward: Any) -> Callable[[StepResult], Any]:
    async def answer(result: StepResult) -> StepResult:
        return StepResult(result.state, reward=reward, done=result.done)

    return answer


ENV_FAULTS: Mapping[str, tuple[str, Callable[[StepResult], Any]]] = {
    "fork_fails": ("fork", _breaks),
    "fork_hangs": ("fork", _hangs),
    "step_fails": ("step", _breaks),
    "step_hangs": ("step", _hangs),
    "close_raises": ("release", _breaks),
    "grader_raises": ("grade", _breaks),
    "grader_hangs": ("grade", _hangs),
    "grader_none": ("grade", _scored(None)),
    "grader_nan": ("grade", _scored(_NAN)),
    "grader_text": ("grade", _scored("right")),
}
"""Which method goes wrong, and how: "grade" is the step that ends an episode."""


class FaultyEnv(LiveEnv):
    """The walk with live states; `share` of the calls of a method go wrong.

    A call that fails changed nothing before, but for a release, which happened.
    """

    def __init__(self, name: str | None = None, *, share: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        self._name = name
        self._share = share
        self._rng = random.Random(f"{seed}/env")

    async def fork(self, state: Handle) -> Handle:
        await self._meet("fork", StepResult(state))
        return await super().fork(state)

    async def step(self, state: Handle, action: Any, workspace: object) -> StepResult:
        await self._meet("step", StepResult(state))
        result = await super().step(state, action, workspace)
        return await self._meet("grade", result) if result.done else result

    async def release(self, state: Handle) -> None:
        await super().release(state)
        await self._meet("release", StepResult(state))

    async def _meet(self, method: str, result: StepResult) -> StepResult:
        if self._rng.random() >= self._share:
            return result
        name = self._name or self._rng.choice(sorted(ENV_FAULTS))
        where, act = ENV_FAULTS[name]
        if where != method:
            return result
        changed: StepResult = await act(result)
        return changed
