"""Calls of the environment, which is foreign code: its errors get a name and a place."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from focus._cancellation import within
from focus.agent.env import Env, Held, StepResult, fork_state
from focus.checkpoint import Checkpoint
from focus.errors import EnvError, FocusError, ProblemError
from focus.tokens import FinishReason, Generation

__all__ = ("ask", "ask_outcome", "check_result", "naming", "number", "take_step")

T = TypeVar("T")


@contextmanager
def naming(where: str) -> Iterator[None]:
    """A problem that cannot be used leaves the block with its place in the text."""
    try:
        yield
    except ProblemError as error:
        if where in str(error):
            raise
        raise ProblemError(f"{where}: {error}") from error


async def ask(call: Callable[[], Awaitable[T]], method: str, where: str, *, deadline_s: float) -> T:
    """One call of the environment; whatever goes wrong in it is an EnvError with its cause.

    A call past its deadline is cancelled, so that a sandbox that hangs ends no collection.
    """
    try:
        return await within(
            deadline_s,
            call,
            late=lambda: EnvError(f"{where}: no answer from env.{method} within {deadline_s:g} s"),
            stray=lambda: EnvError(f"{where}: env.{method} was cancelled from inside"),
        )
    except FocusError:
        raise
    except Exception as error:
        raise EnvError(f"{where}: env.{method} raised {error!r}") from error


async def take_step(
    env: Env,
    checkpoint: Checkpoint,
    action: Any,
    held: Held,
    *,
    where: str,
    deadline_s: float,
) -> StepResult:
    """Step a fork of the checkpoint's state; `held` gets what must be released on failure."""
    before = checkpoint.state
    state = before
    if hasattr(env, "fork"):
        state = await ask(lambda: fork_state(env, before), "fork", where, deadline_s=deadline_s)
        if state is not before:
            held.states.append(state)
    result = await ask(
        lambda: env.step(state, action, checkpoint.workspace), "step", where, deadline_s=deadline_s
    )
    if not isinstance(result, StepResult):
        raise EnvError(f"{where}: env.step gave {result!r}, not a StepResult")
    held.states[:] = [result.state]
    return result


async def ask_outcome(
    env: Env, checkpoint: Checkpoint, *, where: str, deadline_s: float, reason: str = ""
) -> float:
    """Outcome of an episode that has no room for one more token, or ended for `reason`."""
    reason = reason or ("allowance" if checkpoint.allowance.is_spent else "context")
    return await ask(
        lambda: env.finish(checkpoint.state, checkpoint.workspace, reason),
        "finish",
        where,
        deadline_s=deadline_s,
    )


def check_result(generation: Generation, result: StepResult, *, where: str) -> None:
    """Refuse a step that leaves the episode in no defined state."""
    if result.done:
        return
    if result.reward:
        raise EnvError(
            f"{where}: outcome reward {result.reward!r} on a step that does not end the "
            "episode; use step_reward for shaping"
        )
    if generation.finish is FinishReason.STOP and not result.messages:
        raise EnvError(
            f"{where}: the policy ended its reply and the environment neither ended the "
            "episode nor answered"
        )


def number(value: Any, name: str, *, where: str) -> float:
    """A finite float from an environment's number; None and NaN are errors, not zero."""
    if type(value) is float and math.isfinite(value):
        return value
    try:
        found = float(value)
    except (TypeError, ValueError) as error:
        raise EnvError(f"{where}: the environment's {name} is {value!r}") from error
    if not math.isfinite(found):
        raise EnvError(f"{where}: the environment's {name} is {found}")
    return found
