"""One run of a chat program as an episode."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from focus.agent.episodes import Transition
from focus.agent.tools import Tool
from focus.agent.turns import TurnAction
from focus.errors import EnvError, ProblemError
from focus.integrations.chat.client import AsyncChatClient, ChatClient
from focus.integrations.chat.handover import Ended, Handover
from focus.integrations.chat.reply import completion
from focus.integrations.chat.request import ChatRequest, read_request
from focus.problem import Message, Problem

__all__ = ("ChatEpisode", "DeclaredTool", "Grade", "Program")

Program = Callable[[Any, Problem], Any]
"""(client, problem) → result; sync or async."""
Grade = Callable[[Any, Problem], float]
"""(result of the program, problem) → outcome."""

REMINDER = "not run: another call of this message could not be read"


@dataclass(frozen=True)
class DeclaredTool(Tool):
    """A tool that the program declares by its schema and runs itself."""

    declared: Any = None

    @property
    def schema(self) -> dict[str, Any]:
        return dict(self.declared)


class ChatEpisode:
    """Plays the model for one run of a program; an :class:`focus.agent.episodes.Episode`.

    Calls that cannot be read, or name no tool of the program, are answered here: the
    program is not told, as no chat API would show it such a message.

    Args:
        program, grade, unfinished, patience_s: as in :class:`ChatEnv`.
    """

    def __init__(
        self, program: Program, *, grade: Grade, unfinished: float, patience_s: float
    ) -> None:
        self._program = program
        self._grade = grade
        self._unfinished = unfinished
        self._patience_s = patience_s
        self._handover: Handover | None = None
        self._asked = ChatRequest(())
        self._turn = 0

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the program declared in its first request."""
        return tuple(
            DeclaredTool(name, "", (), _not_ours, declared=schema)
            for name, schema in self._schemas().items()
        )

    def reset(self, problem: Problem) -> Sequence[Message]:
        self._problem = problem
        self._handover = Handover(lambda: self._play(problem), patience_s=self._patience_s)
        event = self._handover.begin()
        if isinstance(event, Ended):
            raise ProblemError(f"problem {problem.id!r}: the program ended without asking a model")
        self._asked = read_request(event.body)
        return self._asked.messages

    def step(self, action: TurnAction) -> Transition:
        assert self._handover is not None
        if refused := self._refused(action):
            return Transition(refused)
        parameters = {n: s["function"].get("parameters", {}) for n, s in self._schemas().items()}
        reply = completion(action, turn=self._turn, schemas=parameters)
        self._turn += 1
        event = self._handover.answer(reply)
        if isinstance(event, Ended):
            return Transition(reward=self._grade(event.result, self._problem), done=True)
        asked = read_request(event.body)
        said = read_request({"messages": [reply.choices[0].message]}).messages[0]
        told = asked.after(self._asked, said)
        self._asked = asked
        return Transition(told)

    def finish(self, reason: str) -> float:
        return self._unfinished

    def close(self) -> None:
        """Stop the program."""
        if self._handover is not None:
            self._handover.stop()

    def _play(self, problem: Problem) -> Any:
        assert self._handover is not None
        if not inspect.iscoroutinefunction(self._program):
            return self._program(ChatClient(self._handover), problem)
        return asyncio.run(self._program(AsyncChatClient(self._handover), problem))

    def _schemas(self) -> dict[str, Any]:
        try:
            return {tool["function"]["name"]: tool for tool in self._asked.tools}
        except (KeyError, TypeError) as error:
            raise EnvError(f"the program declares a tool that is no function: {error!r}") from error

    def _refused(self, action: TurnAction) -> tuple[Message, ...]:
        """Answers to the calls of a message that the program is not shown; () for none."""
        known = self._schemas()
        faults = [
            f"this call could not be read: {call.fault}"
            if call.fault
            else ""
            if call.name in known
            else f"no tool {call.name[:60]!r}; there are: {', '.join(known) or 'none'}"
            for call in action.calls
        ]
        if not any(faults):
            return ()
        return tuple(Message("tool", f"error: {fault or REMINDER}") for fault in faults)


def _not_ours(**_: Any) -> str:
    raise EnvError("the program runs its own tools")
