"""Episodes whose whole state is a folder: they fork by copying it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus._cancellation import to_its_end
from focus.agent.env import StepResult
from focus.agent.episodes.episode import Episode
from focus.agent.episodes.folders import (
    copy_folder,
    folder_to_plain,
    new_folder,
    plain_to_folder,
    remove_folder,
)
from focus.agent.episodes.ledger import OpenStates
from focus.agent.episodes.recording import close_episode
from focus.agent.episodes.workers import Threads, made_whole
from focus.agent.tools import Tool
from focus.problem import Message, Problem

__all__ = ("DirectoryEnv", "FolderState")


@dataclass(eq=False)
class FolderState:
    """A folder, and the episode that works in it."""

    folder: Path
    episode: Episode


class DirectoryEnv:
    """Forks an episode by copying its folder, by reference where the file system can.

    `episode(folder)` must find everything it needs in its folder: a fork is a new episode
    on a copy, without a `reset`. It isolates files below the folder. It does not isolate
    files elsewhere, running processes or memory, and refuses links that lead outside.

    A snapshot holds the files themselves.

    Args:
        episode: makes the episode of a folder.
        source: what each folder begins with; None begins empty. It is never changed.
        scratch: where folders are made; None is the system's temporary folder. A killed
            process leaves its folders there, named ``focus-episode-*``.
        tools: what the policy is shown, where the episode takes tool calls.
        threads: episodes that run at once.
        most_bytes: most bytes of files in one snapshot.
    """

    def __init__(
        self,
        episode: Callable[[Path], Episode],
        *,
        source: str | os.PathLike[str] | None = None,
        scratch: str | os.PathLike[str] | None = None,
        tools: Sequence[Tool] = (),
        threads: int = 4,
        most_bytes: int = 2**24,
    ) -> None:
        self.tools: tuple[Tool, ...] = tuple(tools)
        self._episode = episode
        self._source = None if source is None else Path(source)
        self._scratch = scratch
        self._threads = Threads(threads)
        self._most_bytes = most_bytes
        self._open = OpenStates()

    @property
    def open_states(self) -> int:
        """States that were given out and not released."""
        return len(self._open)

    async def reset(self, problem: Problem) -> tuple[FolderState, tuple[Message, ...]]:
        state = await self._made(self._begin)
        try:
            messages = await self._threads.run(lambda: tuple(state.episode.reset(problem)))
        except BaseException:
            await to_its_end(self.release(state))
            raise
        return state, messages

    async def fork(self, state: FolderState) -> FolderState:
        """A new episode on a copy of the folder.

        Raises:
            EnvError: something in the folder cannot be copied.
            LifecycleError: the state was released before.
        """
        self._open.check(state)
        return await self._made(lambda folder: copy_folder(state.folder, folder))

    async def step(self, state: FolderState, action: Any, workspace: object) -> StepResult:
        self._open.check(state)
        answer = await self._threads.run(lambda: state.episode.step(action))
        return answer.at(state)

    async def finish(self, state: FolderState, workspace: object, reason: str) -> float:
        self._open.check(state)
        return await self._threads.run(lambda: state.episode.finish(reason))

    async def release(self, state: FolderState) -> None:
        """Remove one state's folder; a second time does nothing."""
        if self._open.drop(state):
            await self._threads.run(lambda: _remove(state))

    async def snapshot(self, state: FolderState) -> dict[str, Any]:
        """The files.

        Raises:
            EnvError: they are more than `most_bytes`.
        """
        self._open.check(state)
        limit = self._most_bytes
        return await self._threads.run(lambda: folder_to_plain(state.folder, most_bytes=limit))

    async def restore(self, snapshot: Mapping[str, Any]) -> FolderState:
        """A new episode on a folder with these files."""
        return await self._made(lambda folder: plain_to_folder(snapshot, folder))

    def _begin(self, folder: Path) -> None:
        if self._source is not None:
            copy_folder(self._source, folder)

    async def _made(self, fill: Callable[[Path], None]) -> FolderState:
        """A state on a new folder; where that fails, no folder is left."""

        def make() -> FolderState:
            folder = new_folder(self._scratch)
            try:
                fill(folder)
                return FolderState(folder, self._episode(folder))
            except BaseException:
                remove_folder(folder)
                raise

        async def work() -> FolderState:
            return self._open.add(await self._threads.run(make))

        return await made_whole(work(), drop=self.release)


def _remove(state: FolderState) -> None:
    try:
        close_episode(state.episode)
    finally:
        remove_folder(state.folder)
