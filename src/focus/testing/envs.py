"""Environments without a model: a walk whose half-way height tells how it will end."""

from __future__ import annotations

import random
from typing import Any

from focus.agent import SegmentAction, StepResult
from focus.problem import Message, Problem

__all__ = ("WalkEnv", "walk_script")


def walk_script(steps: int = 12) -> Any:
    """A script for ScriptedPolicy: ``steps`` random "+" or "-", continued from what stands."""

    def script(prompt: str, so_far: str, rng: random.Random) -> str:
        return "".join(rng.choice("+-") for _ in range(steps - len(so_far)))

    return script


class WalkEnv:
    """Outcome 1 if the reply holds more "+" than "-"; the state is the height so far.

    Counts its calls, so that tests can tell what was asked of it.
    """

    def __init__(self) -> None:
        self.resets = 0
        self.steps = 0
        self.finishes: list[str] = []

    async def reset(self, problem: Problem) -> tuple[int, tuple[Message, ...]]:
        self.resets += 1
        return 0, problem.messages

    async def step(self, state: int, action: SegmentAction, workspace: object) -> StepResult:
        self.steps += 1
        height = action.text.count("+") - action.text.count("-")
        if not action.finished:
            return StepResult(state=height)
        return StepResult(state=height, reward=float(height > 0), done=True)

    async def finish(self, state: int, workspace: object, reason: str) -> float:
        self.finishes.append(reason)
        return float(state > 0)
