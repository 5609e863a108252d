"""Episodes in processes of their own: they fork as the system forks processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from focus._cancellation import to_its_end
from focus._closing import Closing
from focus.agent.env import StepResult
from focus.agent.episodes.ledger import OpenStates
from focus.agent.episodes.plain import decode_transition, digest, encode_action
from focus.agent.episodes.process_link import HostProcess
from focus.agent.episodes.recording import Recording
from focus.agent.episodes.wire import AsyncWire
from focus.agent.episodes.workers import made_whole
from focus.agent.tools import Tool
from focus.problem import Message, Problem
from focus.records.codec import decode_message, encode_problem

__all__ = ("ProcessEnv", "ProcessState")

_CLOSE_S = 5.0
"""Longest wait for an episode's own `close`; its process ends all the same."""


@dataclass(eq=False)
class ProcessState:
    """One episode's process, and the way it came."""

    wire: AsyncWire
    pid: int
    way: Recording


class ProcessEnv(Closing):
    """Forks an episode by forking its process: all of its memory, whatever it is made of.

    A small server imports the episode's module once, at the first `reset` (which the agent's
    ``env_deadline_s`` must allow for), and forks from there, so a branch costs milliseconds
    and shares memory until it writes. It isolates memory and crashes; a step
    past its deadline is killed, and one whose process ends is told at once, though what it
    started lives on until the state is released. It does not isolate files, sockets and child
    processes that the episode opened before a fork (both sides have them), and an episode
    must be without threads when it is forked. Needs Linux.

    A snapshot is the recorded actions; `restore` takes them again and refuses an episode
    that then answers otherwise.

    Borrowed by collectors: close it with ``async with`` or `aclose`; one left open ends
    with this process, however that ends.

    Args:
        factory: importable ``"package.module:name"`` of what makes an episode.
        arguments: plain JSON that the factory is called with, by name.
        tools: what the policy is shown, where the episode takes tool calls.
        most: processes at once; a tree holds one per node until it is stored.

    Raises:
        ConfigError: not Linux, no such form of name, or `most` is below 1.
    """

    def __init__(
        self,
        factory: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        most: int = 512,
    ) -> None:
        self.tools: tuple[Tool, ...] = tuple(tools)
        self._host = HostProcess(factory, dict(arguments or {}))
        self._open = OpenStates(most=most)

    @property
    def open_states(self) -> int:
        """States that were given out and not released; each is a process."""
        return len(self._open)

    async def aclose(self) -> None:
        """End every process; states are released with it. May be called again."""
        for state in self._open.drop_all():
            state.wire.close()
        await to_its_end(self._host.aclose())

    async def reset(self, problem: Problem) -> tuple[ProcessState, tuple[Message, ...]]:
        asked = {"call": "reset", "problem": encode_problem(problem)}
        state, reply = await self._opened(asked, Recording(problem, ""))
        messages = tuple(decode_message(item) for item in reply["messages"])
        state.way = Recording(problem, digest(reply["messages"]))
        return state, messages

    async def fork(self, state: ProcessState) -> ProcessState:
        """A second process of the episode.

        Raises:
            EnvError: as many as may be are open, or the system forks no more.
            LifecycleError: the state was released before.
        """
        self._open.check(state)

        async def work() -> ProcessState:
            with self._open.room():
                wire, pid = await self._host.forked(state.wire)
                return self._open.add(ProcessState(wire, pid, state.way))

        return await made_whole(work(), drop=self.release)

    async def step(self, state: ProcessState, action: Any, workspace: object) -> StepResult:
        self._open.check(state)
        asked = {"call": "step", "action": encode_action(action)}
        answer = decode_transition(await state.wire.ask(asked))
        state.way = state.way.then(action, answer)
        return answer.at(state)

    async def finish(self, state: ProcessState, workspace: object, reason: str) -> float:
        self._open.check(state)
        reply = await state.wire.ask({"call": "finish", "reason": reason})
        return float(reply["outcome"])

    async def release(self, state: ProcessState) -> None:
        """End one state's process; a second time does nothing."""
        if self._open.drop(state):
            await to_its_end(self._ended(state))

    async def snapshot(self, state: ProcessState) -> dict[str, Any]:
        """The recorded actions."""
        self._open.check(state)
        return state.way.to_plain()

    async def restore(self, snapshot: Mapping[str, Any]) -> ProcessState:
        """Take the recorded actions again, in a new process.

        Raises:
            NondeterminismError: the episode answers otherwise than before.
        """
        way = Recording.from_plain(snapshot)
        state, _ = await self._opened({"call": "play", "recording": way.to_plain()}, way)
        return state

    async def _opened(
        self, asked: dict[str, Any], way: Recording
    ) -> tuple[ProcessState, dict[str, Any]]:
        """A new process that was asked its first question."""

        async def work() -> ProcessState:
            with self._open.room():
                wire, pid = await self._host.opened()
                return self._open.add(ProcessState(wire, pid, way))

        state = await made_whole(work(), drop=self.release)
        try:
            return state, await state.wire.ask(asked)
        except BaseException:
            await self.release(state)
            raise

    async def _ended(self, state: ProcessState) -> None:
        try:
            if not state.wire.is_broken:
                with anyio.move_on_after(_CLOSE_S):
                    await state.wire.ask({"call": "close"})
        finally:
            state.wire.close()
            await self._host.reaped(state.pid)
