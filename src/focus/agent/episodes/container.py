"""Episodes in containers: they fork by a saved state that a new container is loaded from."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from focus._cancellation import to_its_end
from focus.agent.env import StepResult
from focus.agent.episodes.engine import PODMAN, Command, Engine, run_command
from focus.agent.episodes.ledger import OpenStates
from focus.agent.episodes.plain import decode_transition, encode_action
from focus.agent.episodes.workers import made_whole
from focus.agent.tools import Tool
from focus.errors import EnvError, SchemaError
from focus.problem import Message, Problem
from focus.records.codec import decode_message, encode_problem
from focus.records.strict_json import Fields, dumps, loads

__all__ = ("ContainerEnv", "ContainerState")

_QUIET = {"messages": [], "reward": 0.0, "step_reward": 0.0, "done": False}


@dataclass(eq=False)
class ContainerState:
    """A running container, and the state of it that was saved for its forks, if any."""

    name: str
    saved: str | None = None
    saving: anyio.Lock = field(default_factory=anyio.Lock)


class ContainerEnv:
    """Forks an episode by saving its container and loading the state into a new one.

    The image has a program that answers JSON on stdin with JSON on stdout:

        episode reset   {"problem": …}                 → {"messages": [{"role", "content"}]}
        episode step    {"plain": …} or {"turn": …}    → {"messages", "reward", "step_reward",
                                                          "done"}, each optional
        episode finish  {"reason": …}                  → {"outcome": 1.0}

    What is isolated is the engine's matter: with `PODMAN` processes, memory and files, with
    `DOCKER` files only; never volumes and the network. A state is saved once for all its
    forks. A snapshot is a saved state below `archives`, which stays until you remove it.

    Args:
        image: of a container that stays up by itself.
        program: the episode's program inside it, and its first words.
        engine: `PODMAN`, `DOCKER` or command lines of your own.
        run: what runs a command line; on another machine, for example.
        archives: folder of snapshots; None is the system's temporary folder.
        tools: what the policy is shown, where the episode takes tool calls.
        most: containers at once; a tree holds one per node until it is stored.
        deadline_s: longest run of one command of the engine.
    """

    def __init__(
        self,
        image: str,
        *,
        program: Sequence[str] = ("episode",),
        engine: Engine = PODMAN,
        run: Command = run_command,
        archives: str | os.PathLike[str] | None = None,
        tools: Sequence[Tool] = (),
        most: int = 64,
        deadline_s: float = 60.0,
    ) -> None:
        self.tools: tuple[Tool, ...] = tuple(tools)
        self._image = image
        self._program = tuple(program)
        self._engine = engine
        self._run = run
        self._archives = Path(tempfile.gettempdir() if archives is None else archives)
        self._deadline_s = deadline_s
        self._open = OpenStates(most=most)

    @property
    def open_states(self) -> int:
        """States that were given out and not released; each is a container."""
        return len(self._open)

    async def reset(self, problem: Problem) -> tuple[ContainerState, tuple[Message, ...]]:
        state = await self._made(self._engine.start, {"image": self._image})
        try:
            reply = await self._ask(state, "reset", {"problem": encode_problem(problem)})
            told = Fields(reply, where="reset of the container").items("messages")
            return state, tuple(decode_message(item) for item in told)
        except BaseException:
            await self._dropped(state)
            raise

    async def fork(self, state: ContainerState) -> ContainerState:
        """A new container in the state's saved state.

        Raises:
            EnvError: the engine failed, or as many containers are up as may be.
            LifecycleError: the state was released before.
        """
        self._open.check(state)
        saved = await to_its_end(self._saved(state))
        return await self._made(self._engine.load, self._places(saved))

    async def step(self, state: ContainerState, action: Any, workspace: object) -> StepResult:
        self._open.check(state)
        await self._forget(state)
        reply = await self._ask(state, "step", encode_action(action))
        return decode_transition({**_QUIET, **reply}).at(state)

    async def finish(self, state: ContainerState, workspace: object, reason: str) -> float:
        self._open.check(state)
        reply = await self._ask(state, "finish", {"reason": reason})
        return Fields(reply, where="finish of the container").number("outcome")

    async def release(self, state: ContainerState) -> None:
        """Remove one state's container; a second time does nothing."""
        if self._open.drop(state):
            await to_its_end(self._removed(state))

    async def snapshot(self, state: ContainerState) -> dict[str, str]:
        """The name of a saved state, which stays until you remove it."""
        self._open.check(state)
        mark = _new_name("focus-snapshot")
        await self._do(self._engine.save, self._places(mark, of=state))
        return {"mark": mark}

    async def restore(self, snapshot: Mapping[str, Any]) -> ContainerState:
        """A new container in a saved state."""
        mark = Fields(dict(snapshot), where="container").text("mark")
        return await self._made(self._engine.load, self._places(mark))

    async def _made(self, line: Sequence[str], places: Mapping[str, str]) -> ContainerState:
        """A new container; where its command fails, what there is of it is removed."""

        async def work() -> ContainerState:
            with self._open.room():
                state = self._open.add(ContainerState(_new_name("focus")))
                try:
                    await self._do(line, {**places, "name": state.name})
                except BaseException:
                    await self._dropped(state)
                    raise
                return state

        return await made_whole(work(), drop=self.release)

    async def _dropped(self, state: ContainerState) -> None:
        """Remove what another error is about; that error says more than one of this."""
        with suppress(EnvError):
            await to_its_end(self.release(state))

    async def _saved(self, state: ContainerState) -> str:
        async with state.saving:
            if state.saved is None:
                mark = _new_name("focus-fork")
                await self._do(self._engine.save, self._places(mark, of=state))
                state.saved = mark
            return state.saved

    async def _forget(self, state: ContainerState) -> None:
        """Discard what was saved for forks."""
        saved, state.saved = state.saved, None
        if saved is not None:
            await to_its_end(self._do(self._engine.discard, self._places(saved)))

    async def _removed(self, state: ContainerState) -> None:
        try:
            await self._do(self._engine.remove, {"name": state.name})
        finally:
            await self._forget(state)

    def _places(self, mark: str, *, of: ContainerState | None = None) -> dict[str, str]:
        places = {"mark": mark, "archive": str(self._archives / f"{mark}.tar")}
        return places if of is None else {**places, "name": of.name}

    async def _ask(self, state: ContainerState, call: str, asked: Any) -> dict[str, Any]:
        words = (*self._engine.call, *self._program, call)
        reply = await self._do(words, {"name": state.name}, stdin=dumps(asked, what=call))
        try:
            return Fields(loads(reply, where=f"{call} of the container"), where=call).rest()
        except SchemaError as error:
            raise EnvError(f"{state.name}: {' '.join(self._program)}: {error}") from error

    async def _do(
        self, words: Sequence[str], places: Mapping[str, str], *, stdin: bytes = b""
    ) -> bytes:
        """What a command printed.

        Raises:
            EnvError: it failed, or took too long.
        """
        line = self._engine.line(words, **places)
        try:
            with anyio.fail_after(self._deadline_s):
                done = await self._run(line, stdin)
        except TimeoutError as error:
            raise EnvError(f"{' '.join(line)}: no end within {self._deadline_s:g} s") from error
        if done.code != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[-400:]
            raise EnvError(f"{' '.join(line)}: exit code {done.code}: {said}")
        return done.stdout


def _new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"
