"""Solutions written line by line whose last box is the answer: environment and task."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from focus.agent import SegmentAction, StepResult
from focus.problem import Message, Problem
from focus.tasks.arithmetic import SYSTEM_PROMPT, Split
from focus.tasks.registry import Task

__all__ = ("BoxEnv", "boxed_messages", "boxed_task", "equal_to_label")

Grade = Callable[[str, Any], float]
"""Outcome from the text in the last box and the problem's label."""

_BOX = re.compile(r"\\boxed\{([^{}]*)\}")


def equal_to_label(answer: str, label: Any) -> float:
    """1 where the answer is the label, character by character."""
    return float(answer == str(label))


def boxed_messages(problem: Problem) -> tuple[Message, ...]:
    """The conversation a solver sees."""
    return (Message("system", SYSTEM_PROMPT), *problem.messages)


class BoxEnv:
    """Grades the last box of a reply; without one the outcome is 0."""

    def __init__(self, label: Any, grade: Grade = equal_to_label) -> None:
        self.label = label
        self.grade = grade

    async def reset(self, problem: Problem) -> tuple[str, tuple[Message, ...]]:
        return "", boxed_messages(problem)

    async def step(self, state: str, action: SegmentAction, workspace: Any) -> StepResult:
        reward = self._outcome(action.text) if action.finished else 0.0
        return StepResult(action.text, reward=reward, done=action.finished)

    async def finish(self, state: str, workspace: Any, reason: str) -> float:
        return self._outcome(state)

    def _outcome(self, text: str) -> float:
        boxes = _BOX.findall(text)
        return self.grade(boxes[-1], self.label) if boxes else 0.0


def boxed_task(
    name: str,
    *,
    segment_tokens: int,
    most_tokens: int,
    draw: Callable[[Split, int, int], tuple[Problem, ...]],
    grade: Grade = equal_to_label,
) -> Task:
    """A task of boxed answers whose allowance is whole segments, at least `most_tokens`."""
    return Task(
        name=name,
        segment_tokens=segment_tokens,
        allowance_tokens=-(-most_tokens // segment_tokens) * segment_tokens,
        draw=draw,
        make_env=lambda problem: BoxEnv(problem.label, grade),
    )
