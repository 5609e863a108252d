"""An environment made of tools: the episode ends when the policy submits an answer."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from focus.agent.env import StepResult
from focus.agent.tool_calls import answer_calls
from focus.agent.tools import Tool, by_name, tool
from focus.agent.turns import TurnAction
from focus.agent.workspace import Workspace
from focus.errors import ConfigError, ToolError
from focus.problem import Message, Problem
from focus.rendering import Call, dialect_named

__all__ = ("ToolEnv", "ToolState", "submit")

Grade = Callable[[Mapping[str, Any]], float | Awaitable[float]]
"""Arguments of the submit call → outcome."""

REMINDER = "Call a tool, or submit your answer."
NO_CALLS_LEFT = "error: no calls are left; submit your answer."


@tool
def submit(answer: str) -> str:
    """Give your final answer; this ends the task.

    Args:
        answer: the answer alone.
    """
    return answer


@dataclass(frozen=True, slots=True)
class ToolState:
    """Where an episode of tools stands.

    Attributes:
        calls_left: calls that will still be run; None is no limit.
        turns: messages answered so far.
        unreadable: calls that could not be read so far.
    """

    calls_left: int | None = None
    turns: int = 0
    unreadable: int = 0


class ToolEnv:
    """Tools, and one outcome when the policy submits.

    The first sound submit call ends the episode; other calls of its turn are not run, and
    neither are those of the last turn there is. A turn without a call is answered with a
    reminder and costs a turn. Calls of a turn run
    concurrently and are answered in order; calls that cannot be read or served are answered
    with the reason. Tools of the agent's workspace are offered and run too. A tool that
    breaks ends the expansion as failed; that is never an outcome.

    Running out of turns, tokens or context without an answer is worth `unanswered`.

    Args:
        tools: what the policy may call.
        grade: outcome of an answer, sync or async, given submit's arguments. None (with
            ``submit=None``) grades the text of the first turn without a call.
        submit: the tool that ends the episode; None lets a turn without calls end it.
        system: first message, before the problem's own; "" for none.
        most_calls: calls that are run before only submit is left; None is no limit.
            ``StateCounter("calls_left", refill=...)`` folds when they are used up.
        most_characters: longest result of a tool.
        unanswered: outcome of an episode without an answer.

    Raises:
        ConfigError: two tools share a name, or a number is out of range.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        grade: Grade,
        submit: Tool | None = submit,
        system: str = "",
        most_calls: int | None = None,
        most_characters: int | None = 4000,
        unanswered: float = 0.0,
    ) -> None:
        if most_calls is not None and most_calls < 1:
            raise ConfigError(f"most_calls must be >= 1, got {most_calls}")
        self.tools: tuple[Tool, ...] = (*tools, *(() if submit is None else (submit,)))
        by_name(self.tools)
        self._submit = submit
        self._run = {each.name: each for each in tools}
        self._grade = grade
        self._system = system
        self._most_calls = most_calls
        self._most_characters = most_characters
        self._unanswered = unanswered

    async def reset(self, problem: Problem) -> tuple[ToolState, tuple[Message, ...]]:
        system = (Message("system", self._system),) if self._system else ()
        return ToolState(self._most_calls), (*system, *problem.messages)

    async def step(
        self, state: ToolState, action: TurnAction, workspace: Workspace | None
    ) -> StepResult:
        unreadable = state.unreadable + sum(1 for call in action.calls if call.fault)
        state = replace(state, turns=state.turns + 1, unreadable=unreadable)
        answer = self._answer(action)
        if answer is not None:
            return StepResult(state, reward=await self.outcome(answer, workspace), done=True)
        if action.is_last or not action.calls:
            return StepResult(state, (Message("user", REMINDER),))
        calls, refused = self._affordable(state, action.calls)
        answered = await answer_calls(
            self._all_tools(workspace),
            calls,
            workspace,
            dialect=action.dialect,
            most_characters=self._most_characters,
        )
        left = None if state.calls_left is None else state.calls_left - len(calls)
        return StepResult(replace(state, calls_left=left), (*answered, *refused))

    async def outcome(self, answer: Mapping[str, Any], workspace: Workspace | None) -> float:
        """What an answer is worth: by `grade`, unless a subclass knows better."""
        graded = self._grade(answer)
        return await graded if inspect.isawaitable(graded) else graded

    async def finish(self, state: ToolState, workspace: Any, reason: str) -> float:
        return self._unanswered

    async def snapshot(self, state: ToolState) -> dict[str, int | None]:
        """The state as JSON, for a journal."""
        return asdict(state)

    async def restore(self, snapshot: Mapping[str, Any]) -> ToolState:
        """Inverse of `snapshot`; no tool is run."""
        return ToolState(**snapshot)

    def _answer(self, action: TurnAction) -> Mapping[str, Any] | None:
        """What was submitted, if anything sound was."""
        if self._submit is None:
            return None if action.calls else {"answer": action.text}
        as_text = dialect_named(action.dialect).has_text_arguments
        for call in action.calls:
            if call.name == self._submit.name and not call.fault:
                try:
                    return self._submit.arguments(call, as_text=as_text)
                except ToolError:
                    continue
        return None

    def _affordable(
        self, state: ToolState, calls: Sequence[Call]
    ) -> tuple[Sequence[Call], list[Message]]:
        """The calls that may still be run, and an answer to each of the others."""
        if state.calls_left is None:
            return calls, []
        most = max(0, state.calls_left)
        return calls[:most], [Message("tool", NO_CALLS_LEFT) for _ in calls[most:]]

    def _all_tools(self, workspace: Workspace | None) -> dict[str, Tool]:
        """The environment's tools, the workspace's, and submit for its refusals."""
        own = {} if self._submit is None else {self._submit.name: self._submit}
        files = {} if workspace is None else {each.name: each for each in workspace.tools}
        return {**files, **self._run, **own}
