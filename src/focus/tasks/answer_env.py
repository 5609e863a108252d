"""A task whose outcome is the grade of one reply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from focus.agent.env import SegmentAction, StepResult
from focus.problem import Message, Problem
from focus.tasks.answers import tail
from focus.tasks.grading import Grader, shared_grader

__all__ = ("AnswerEnv", "AnswerState")


@dataclass(frozen=True, slots=True)
class AnswerState:
    """The reply so far.

    Attributes:
        text: its part that grading looks at, decoded once from all its ids.
        is_finished: the policy ended it.
    """

    text: str = ""
    is_finished: bool = False


class AnswerEnv:
    """One question, one reply in exact chunks, one grade at its end.

    The outcome is the grade of the whole reply when the policy ends it, and of the reply
    so far when allowance or context run out. Nothing is observed in between. States are
    immutable, so one environment serves every branch of its problem's tree.

    Args:
        reference: what the reply is graded against, in the form of `kind`.
        kind: a kind of :mod:`focus.tasks.scoring`.
        system_prompt: first message; "" for none. A prompt that brings its own keeps it.
        grader: borrowed; None is the process's :func:`focus.tasks.grading.shared_grader`.
    """

    def __init__(
        self,
        reference: Any,
        *,
        kind: str,
        system_prompt: str,
        grader: Grader | None = None,
    ) -> None:
        self.reference = reference
        self.kind = kind
        self.system_prompt = system_prompt
        self._grader = shared_grader() if grader is None else grader

    async def reset(self, problem: Problem) -> tuple[AnswerState, tuple[Message, ...]]:
        """First state and the prompt; a reference that can't be won is refused here.

        Raises:
            ProblemError: no answer could match the reference.
            GraderError: the grader does not work.
        """
        await self._grader.check(self.reference, kind=self.kind)
        messages = problem.messages
        if self.system_prompt and messages[0].role != "system":
            messages = (Message("system", self.system_prompt), *messages)
        return AnswerState(), messages

    async def step(self, state: AnswerState, action: SegmentAction, workspace: Any) -> StepResult:
        """Take the next chunk; grade when the policy is done.

        Raises:
            GraderError: the reply could not be graded; its outcome is unknown.
        """
        state = replace(state, text=tail(action.text), is_finished=action.finished)
        if not action.finished:
            return StepResult(state)
        return StepResult(state, reward=await self._outcome(state), done=True)

    async def finish(self, state: AnswerState, workspace: Any, reason: str) -> float:
        """Grade of the reply so far, when allowance or context ran out.

        Raises:
            GraderError: the reply could not be graded; its outcome is unknown.
        """
        return await self._outcome(state)

    async def _outcome(self, state: AnswerState) -> float:
        return await self._grader.grade(state.text, self.reference, self.kind)
