"""Episodes without a fork: what a fork's answers are compared with."""

from __future__ import annotations

from typing import Any

from focus.agent import StepResult
from focus.agent.env import Env, release_states
from focus.errors import EnvError, NondeterminismError
from focus.problem import Problem
from focus.testing.env_check.moves import Moves, Path

__all__ = ("Straight", "told")


def told(result: Any) -> str:
    """A step's answer without its state, to compare and to print.

    Raises:
        EnvError: it is no StepResult.
    """
    if not isinstance(result, StepResult):
        raise EnvError(f"step gave {result!r}, not a StepResult")
    parts = [f"{message.role}: {message.content!r}" for message in result.messages]
    parts += [f"{call.name}({call.arguments})" for m in result.messages for call in m.tool_calls]
    if result.reward:
        parts.append(f"reward {result.reward!r}")
    if result.step_reward:
        parts.append(f"step reward {result.step_reward!r}")
    return "; ".join([*parts, "done" if result.done else "goes on"])


class Straight:
    """Walks paths from a reset, each state used by one step only, and remembers the answers.

    Args:
        env: serves only this.
    """

    def __init__(self, env: Env, problem: Problem, moves: Moves) -> None:
        self._env = env
        self._problem = problem
        self._moves = moves
        self._answers: dict[Path, str] = {}
        self._outcomes: dict[Path, str] = {}
        self._opening: str | None = None
        self.steps = 0

    async def answer(self, path: Path) -> str:
        """What the last step of a path is answered."""
        if path not in self._answers:
            await self._walk(path)
        return self._answers[path]

    async def outcome(self, path: Path) -> str:
        """What `finish` gives at the end of a path."""
        if path not in self._outcomes:
            await self._walk(path)
        return self._outcomes[path]

    async def ends(self, path: Path) -> bool:
        """Whether the episode is over at the end of a path."""
        return bool(path) and (await self.answer(path)).endswith("done")

    async def _walk(self, path: Path) -> None:
        state, messages = await self._env.reset(self._problem)
        try:
            self._check_opening(repr(tuple(messages)))
            for length in range(1, len(path) + 1):
                way = path[:length]
                result = await self._env.step(state, self._moves.action(way), None)
                self._answers[way] = told(result)
                state = result.state
                self.steps += 1
            outcome = await self._env.finish(state, None, "allowance")
            self._outcomes[path] = repr(float(outcome))
        finally:
            await release_states(self._env, [state])

    def _check_opening(self, opening: str) -> None:
        if self._opening is None:
            self._opening = opening
        elif opening != self._opening:
            raise NondeterminismError(
                f"reset tells the policy {opening} and told it {self._opening} before"
            )
