"""Episodes that fork by taking their recorded actions again: the last resort."""

from __future__ import annotations

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

__all__ = ("ReplayedEnv", "ReplayedState")


@dataclass(eq=False)
class ReplayedState:
    """A way, and an episode at its end while nobody else went on with it."""

    way: Recording
    episode: Episode | None = None

    def taken(self) -> Episode | None:
        """The episode, which from now on is the taker's."""
        episode, self.episode = self.episode, None
        return episode


class ReplayedEnv:
    """Forks an episode by playing its recorded actions to a new one.

    For episodes that can be neither copied nor forked. The first fork of a state takes over
    its episode, so a path that never branches costs nothing; each further branch costs a
    reset and all actions up to it. Every replayed answer is compared with the first one.

    It isolates whatever separate episodes share nothing of. It cannot serve an episode
    whose answers are not decided by problem and actions, and one that acts on the world
    acts again.

    Args:
        episode: makes one, not yet reset.
        tools: what the policy is shown, where the episode takes tool calls.
        threads: episodes that run at once; 1 suits code that is not thread-safe.
    """

    def __init__(
        self, episode: Callable[[], Episode], *, tools: Sequence[Tool] = (), threads: int = 1
    ) -> None:
        self.tools: tuple[Tool, ...] = tuple(tools)
        self.replays = 0
        self._make = episode
        self._threads = Threads(threads)
        self._open = OpenStates()

    @property
    def open_states(self) -> int:
        """States that were given out and not released."""
        return len(self._open)

    async def reset(self, problem: Problem) -> tuple[ReplayedState, tuple[Message, ...]]:
        told: list[tuple[Message, ...]] = []

        def opened() -> ReplayedState:
            episode = self._make()
            way, messages = begin(episode, problem)
            told.append(messages)
            return ReplayedState(way, episode)

        async def work() -> ReplayedState:
            return self._open.add(await self._threads.run(opened))

        return await made_whole(work(), drop=self.release), told[0]

    async def fork(self, state: ReplayedState) -> ReplayedState:
        """The same way; an episode is made for it when it is stepped, if need be.

        Raises:
            LifecycleError: the state was released before.
        """
        self._open.check(state)
        return self._open.add(ReplayedState(state.way, state.taken()))

    async def step(self, state: ReplayedState, action: Any, workspace: object) -> StepResult:
        """Take one action.

        Raises:
            NondeterminismError: the episode was made again and answered otherwise.
        """
        self._open.check(state)
        episode = await self._at(state)
        answer = await self._threads.run(lambda: episode.step(action))
        state.way = state.way.then(action, answer)
        return answer.at(state)

    async def finish(self, state: ReplayedState, workspace: object, reason: str) -> float:
        self._open.check(state)
        episode = await self._at(state)
        return await self._threads.run(lambda: episode.finish(reason))

    async def release(self, state: ReplayedState) -> None:
        """Let go of one state; a second time does nothing."""
        if self._open.drop(state):
            episode = state.taken()
            if episode is not None:
                await self._closed(episode)

    async def snapshot(self, state: ReplayedState) -> dict[str, Any]:
        """The recorded actions."""
        self._open.check(state)
        return state.way.to_plain()

    async def restore(self, snapshot: Mapping[str, Any]) -> ReplayedState:
        """The recorded actions, taken again when the state is stepped."""
        return self._open.add(ReplayedState(Recording.from_plain(snapshot)))

    async def _at(self, state: ReplayedState) -> Episode:
        """The state's own episode, made again if another state took it."""
        if state.episode is None:
            self.replays += 1
            state.episode = await made_whole(
                self._threads.run(lambda: state.way.play(self._make)), drop=self._closed
            )
        return state.episode

    async def _closed(self, episode: Episode) -> None:
        await self._threads.run(lambda: close_episode(episode))
