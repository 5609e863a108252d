"""The task an agent works on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import anyio

from focus._cancellation import stray_cancellation, to_its_end
from focus.agent.workspace import Workspace
from focus.checkpoint import Checkpoint
from focus.errors import EnvError
from focus.problem import Message, Problem
from focus.tokens import TokenIds

__all__ = (
    "Env",
    "Held",
    "SegmentAction",
    "StepResult",
    "fork_state",
    "release_states",
    "released_on_failure",
)

_RELEASE_S = 60.0
"""Longest wait for one `release`; a collection must end even if a sandbox does not."""


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
    ``async fork(state) -> state`` and ``async release(state)``: `step` is then given a
    fork and owns it, and each state that `reset` or `step` returned, and each fork of a
    failed step, is released exactly once.

    With ``async snapshot(state) -> plain JSON`` and ``async restore(snapshot) -> state`` a
    journal brings states back after a crash; without them it lets `step` answer again.

    An environment of tools has ``tools``, a sequence of :class:`focus.agent.Tool`, which
    the agent shows to the policy.
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


async def release_states(env: Env, states: Iterable[Any]) -> None:
    """Let go of states that will not be continued any more: each one, whatever happens.

    A state that several checkpoints share (a fold changes no state) is released once.
    Cancelling the caller delays its cancellation until all are released.

    Raises:
        EnvError: `release` raised or took longer than a minute, for the first such state.
    """
    release = getattr(env, "release", None)
    todo = list({id(state): state for state in states}.values())
    if release is not None and todo:
        await to_its_end(_release_each(release, todo, "environment"))


async def _release_each(
    release: Callable[[Any], Awaitable[None]], states: list[Any], whose: str
) -> None:
    stray = RuntimeError("cancelled from inside")
    first: Exception | None = None
    cancelled: asyncio.CancelledError | None = None
    for state in states:
        try:
            with anyio.fail_after(_RELEASE_S), stray_cancellation(stray):
                await release(state)
        except asyncio.CancelledError as error:  # the loop shuts down; the others still count
            cancelled = error
        except Exception as error:
            first = first or error
    if cancelled is not None:
        raise cancelled
    if first is not None:
        raise EnvError(f"the {whose}'s release raised {first!r}") from first


@dataclass(slots=True)
class Held:
    """What was opened and must be let go: environment states and workspaces."""

    states: list[Any] = field(default_factory=list)
    workspaces: list[Workspace] = field(default_factory=list)

    def add(self, checkpoint: Checkpoint) -> None:
        """Hold what a checkpoint holds."""
        self.states.append(checkpoint.state)
        if checkpoint.workspace is not None:
            self.workspaces.append(checkpoint.workspace)

    async def release(self, env: Env) -> None:
        """Let go of everything, each once, whatever happens; nothing is held afterwards.

        Raises:
            EnvError: a release raised or took longer than a minute.
        """
        states, self.states = self.states, []
        workspaces = list({id(w): w for w in self.workspaces}.values())
        self.workspaces = []
        try:
            await release_states(env, states)
        finally:
            if workspaces:
                await to_its_end(_release_each(_let_go, workspaces, "workspace"))

    async def release_quietly(self, env: Env) -> None:
        """Let go of everything on the way of another error, which says more than a release."""
        with suppress(EnvError):
            await self.release(env)


async def _let_go(workspace: Workspace) -> None:
    await workspace.release()


@asynccontextmanager
async def released_on_failure(env: Env) -> AsyncIterator[Held]:
    """Something to hold states and workspaces in, which a failure of the block releases."""
    held = Held()
    try:
        yield held
    except BaseException:
        await held.release_quietly(env)
        raise
