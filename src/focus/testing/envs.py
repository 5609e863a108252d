"""Environments without a model: a walk whose half-way height tells how it will end.

`WalkEnv` has values for states, `LiveEnv` has handles that must be released.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import anyio.lowlevel

from focus.agent import SegmentAction, StepResult
from focus.problem import Message, Problem

__all__ = ("Handle", "LiveEnv", "WalkEnv", "walk_script")


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


@dataclass(eq=False)
class Handle:
    """A live state: one process, sandbox or connection."""

    height: int = 0
    is_open: bool = True


class LiveEnv:
    """The walk of `WalkEnv` with live states: `step` changes the one it is given.

    Using a handle after its release, or releasing it twice, raises. Once nothing is being
    collected, `opened` equals `released`.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.released = 0

    async def reset(self, problem: Problem) -> tuple[Handle, tuple[Message, ...]]:
        return await self._open(0), problem.messages

    async def fork(self, state: Handle) -> Handle:
        _check_open(state)
        return await self._open(state.height)

    async def step(self, state: Handle, action: SegmentAction, workspace: object) -> StepResult:
        _check_open(state)
        await anyio.lowlevel.checkpoint()
        state.height = action.text.count("+") - action.text.count("-")
        if not action.finished:
            return StepResult(state=state)
        return StepResult(state=state, reward=float(state.height > 0), done=True)

    async def finish(self, state: Handle, workspace: object, reason: str) -> float:
        _check_open(state)
        await anyio.lowlevel.checkpoint()
        return float(state.height > 0)

    async def release(self, state: Handle) -> None:
        _check_open(state)
        await anyio.lowlevel.checkpoint()
        state.is_open = False
        self.released += 1

    async def _open(self, height: int) -> Handle:
        await anyio.lowlevel.checkpoint()
        self.opened += 1
        return Handle(height)


def _check_open(state: Handle) -> None:
    if not state.is_open:
        raise RuntimeError("this handle was released before")
