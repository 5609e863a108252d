"""The task an agent works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from focus.problem import Message, Problem
from focus.tokens import TokenIds

__all__ = ("Env", "SegmentAction", "StepResult", "fork_state", "release_state")


@dataclass(frozen=True, slots=True)
class SegmentAction:
    """What the policy did: one exact chunk of tokens.

    Attributes:
        ids: the chunk's ids.
        finished: the policy ended its reply.
        text: the whole reply so far, decoded once from all its ids, specials dropped.
    """

    ids: TokenIds
    finished: bool
    text: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """The environment's answer to one action.

    Attributes:
        state: next state; the previous one stays valid for siblings.
        messages: observations to show the policy (none for plain segments).
        reward: outcome reward, on the ending transition only.
        step_reward: shaping reward.
        done: the episode ended.
    """

    state: Any
    messages: tuple[Message, ...] = ()
    reward: float = 0.0
    step_reward: float = 0.0
    done: bool = False


@runtime_checkable
class Env(Protocol):
    """A task with a checkable outcome.

    States are immutable: `step` returns a new one, so any checkpoint can be continued
    more than once. Environments whose state lives outside the process also define
    ``async fork(state) -> state`` and ``async release(state)``.
    """

    async def reset(self, problem: Problem) -> tuple[Any, tuple[Message, ...]]:
        """First state and the prompt's messages."""
        ...

    async def step(self, state: Any, action: Any, workspace: Any) -> StepResult:
        """Take one action."""
        ...

    async def finish(self, state: Any, workspace: Any, reason: str) -> float:
        """Outcome of an episode that ran out of allowance or context (`reason`)."""
        ...


async def fork_state(env: Env, state: Any) -> Any:
    """An independent copy of `state`, where the environment's states are live.

    Without a `fork` method states are immutable values and serve as they are.
    """
    fork = getattr(env, "fork", None)
    return state if fork is None else await fork(state)


async def release_state(env: Env, state: Any) -> None:
    """Let go of a state that will not be continued any more."""
    release = getattr(env, "release", None)
    if release is not None:
        await release(state)
