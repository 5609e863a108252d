"""Task families of the bench: arithmetic chains of a given length, graded by plain comparison."""

from __future__ import annotations

import re
from typing import Any

from focus.agent import SegmentAction, StepResult
from focus.problem import Message, Problem
from focus.tasks import arithmetic
from focus.tasks.registry import Task

__all__ = ("FAMILIES", "BoxEnv", "bench_task", "slips_for")

FAMILIES = {"chain-5": None, "chain-10": 10, "chain-20": 20, "chain-40": 40}
"""Operations per problem; None draws 4 to 6, as the shipped model knows them."""

_SEGMENT_TOKENS = {"chain-5": 12, "chain-10": 24, "chain-20": 32, "chain-40": 48}
_TOKENS_PER_LINE = 11
_BOX = re.compile(r"\\boxed\{(-?\d+)\}")


class BoxEnv:
    """Right iff the last box of the reply holds the label, character by character."""

    def __init__(self, label: str) -> None:
        self.label = label

    async def reset(self, problem: Problem) -> tuple[str, tuple[Message, ...]]:
        return "", (Message("system", arithmetic.SYSTEM_PROMPT), *problem.messages)

    async def step(self, state: str, action: SegmentAction, workspace: Any) -> StepResult:
        reward = self._grade(action.text) if action.finished else 0.0
        return StepResult(action.text, reward=reward, done=action.finished)

    async def finish(self, state: str, workspace: Any, reason: str) -> float:
        return self._grade(state)

    def _grade(self, text: str) -> float:
        return float(_BOX.findall(text)[-1:] == [self.label])


def bench_task(name: str) -> Task:
    """A family by name, with a segment length at which a solution spans about six segments."""
    steps = FAMILIES[name]
    longest = max(arithmetic.STEPS) if steps is None else steps
    segment = _SEGMENT_TOKENS[name]
    most = _TOKENS_PER_LINE * longest + 24

    def draw(split: arithmetic.Split, count: int, seed: int) -> tuple[Problem, ...]:
        return tuple(arithmetic.make_problems(count, seed=seed, steps=steps, split=split))

    return Task(
        name=name,
        segment_tokens=segment,
        allowance_tokens=-(-most // segment) * segment,
        draw=draw,
        make_env=lambda problem: BoxEnv(str(problem.label)),
    )


def slips_for(name: str) -> arithmetic.Slips:
    """A demonstrator who guesses one line in four, and spoils about six solutions in ten."""
    longest = FAMILIES[name] or max(arithmetic.STEPS)
    return arithmetic.Slips(guess=0.25, wrong=min(0.6, 3.6 / longest))
