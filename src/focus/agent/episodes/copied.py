"""Episodes that fork by copy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus.agent.env import StepResult
from focus.agent.episodes.episode import Episode
from focus.agent.episodes.ledger import OpenStates
from focus.agent.episodes.recording import Recording, begin, close_episode
from focus.agent.episodes.workers import Threads, made_whole
from focus.agent.tools import Tool
from focus.problem import Message, Problem

__all__ = ("CopiedEnv", "CopiedState")


@dataclass(eq=False)
class CopiedState:
    """One episode, and the way it came."""

    episode: Episode
    way: Recording


class CopiedEnv:
    """Forks an episode by `copy.deepcopy`, or by a copy of your own.

    A copy isolates what it reaches: objects of this process. It does not isolate files,
    sockets, child processes, or what modules and classes hold.

    A snapshot is the recorded actions; `restore` takes them again and refuses an episode
    that then answers otherwise.

    Args:
        episode: makes one, not yet reset.
        copy: an independent copy of one, e.g. ``lambda game: game.copy()``.
        tools: what the policy is shown, where the episode takes tool calls.
        threads: episodes that run at once; 1 suits code that is not thread-safe.
    """

    def __init__(
        self,
        episode: Callable[[], Episode],
        *,
        copy: Callable[[Any], Any] = copy.deepcopy,
        tools: Sequence[Tool] = (),
        threads: int = 1,
    ) -> None:
        self.tools: tuple[Tool, ...] = tuple(tools)
        self._make = episode
        self._copy = copy
        self._threads = Threads(threads)
        self._open = OpenStates()

    @property
    def open_states(self) -> int:
        """States that were given out and not released."""
        return len(self._open)

    async def reset(self, problem: Problem) -> tuple[CopiedState, tuple[Message, ...]]:
        told: list[tuple[Message, ...]] = []

        def opened() -> CopiedState:
            episode = self._make()
            way, messages = begin(episode, problem)
            told.append(messages)
            return CopiedState(episode, way)

        return await self._made(opened), told[0]

    async def fork(self, state: CopiedState) -> CopiedState:
        """A copy of the episode.

        Raises:
            LifecycleError: the state was released before.
        """
        self._open.check(state)
        return await self._made(lambda: CopiedState(self._copy(state.episode), state.way))

    async def step(self, state: CopiedState, action: Any, workspace: object) -> StepResult:
        self._open.check(state)
        answer = await self._threads.run(lambda: state.episode.step(action))
        state.way = state.way.then(action, answer)
        return answer.at(state)

    async def finish(self, state: CopiedState, workspace: object, reason: str) -> float:
        self._open.check(state)
        return await self._threads.run(lambda: state.episode.finish(reason))

    async def release(self, state: CopiedState) -> None:
        """Let go of one state; a second time does nothing."""
        if self._open.drop(state):
            await self._threads.run(lambda: close_episode(state.episode))

    async def snapshot(self, state: CopiedState) -> dict[str, Any]:
        """The recorded actions."""
        self._open.check(state)
        return state.way.to_plain()

    async def restore(self, snapshot: Mapping[str, Any]) -> CopiedState:
        """Take the recorded actions again.

        Raises:
            NondeterminismError: the episode answers otherwise than before.
        """
        way = Recording.from_plain(snapshot)
        return await self._made(lambda: CopiedState(way.play(self._make), way))

    async def _made(self, make: Callable[[], CopiedState]) -> CopiedState:
        async def work() -> CopiedState:
            return self._open.add(await self._threads.run(make))

        return await made_whole(work(), drop=self.release)
