"""Each law of an environment that forks."""

from __future__ import annotations

import gc
import inspect
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio

from focus.agent.env import Env, fork_state, release_states
from focus.problem import Message, Problem
from focus.testing.env_check.cancels import Moment, cancelled, moments
from focus.testing.env_check.leaks import Footprint, footprint
from focus.testing.env_check.moves import Move, Moves
from focus.testing.env_check.moves import Path as Way
from focus.testing.env_check.report import EnvFinding
from focus.testing.env_check.shrink import shrunk
from focus.testing.env_check.straight import Straight, told
from focus.testing.env_check.walk import Op, Walk, draw_ops

__all__ = ("Laws", "Progress")

Progress = Callable[[str, int, int], None]
"""Told the law, how many of its trials are done, and of how many."""

_FORKING = ("step", "step", "step", "both", "fork", "release", "finish")
_RESTORING = ("step", "step", "restore", "release")
_DEEPEST = 6
_SUSPECTS = 30
"""Sequences that are tried again, to find one that leaks."""
_SETTLING_S = 3.0
"""What is still there after so long, with nothing else to do, stays."""
_LOOK_AGAIN_S = 0.01

T = TypeVar("T")


class Laws:
    """Tries the laws on one environment, each giving a finding.

    Args:
        envs: three of a kind: one to fork, one to restore in, one that never forks.
        folders: in which nothing may be left.
        sequences: random sequences of the longest law; others take a share.
    """

    def __init__(
        self,
        envs: Sequence[Env],
        problem: Problem,
        moves: Moves,
        *,
        folders: Sequence[Path],
        sequences: int,
        seed: int,
        progress: Progress,
    ) -> None:
        self._env, self._later, third = envs
        self._problem = problem
        self._moves = moves
        self._straight = Straight(third, problem, moves)
        self._folders = folders
        self._sequences = sequences
        self._chance = random.Random(seed)
        self._progress = progress
        self._tried: list[list[Op]] = []
        self._left: list[str] = []

    async def calls(self) -> EnvFinding:
        """It has the methods it must have, and those that only make sense together."""
        for name in ("reset", "step", "finish"):
            if not inspect.iscoroutinefunction(getattr(self._env, name, None)):
                return _broken("calls", f"an environment has `async def {name}`; this one has not")
        for name, other in (("fork", "release"), ("snapshot", "restore"), ("restore", "snapshot")):
            if hasattr(self._env, name) and not hasattr(self._env, other):
                return _broken("calls", f"it has {name} without {other}")
        opened = await self._env.reset(self._problem)
        if not isinstance(opened, tuple) or len(opened) != 2:
            return _broken("calls", f"reset gave {opened!r}, not (state, messages)")
        await release_states(self._env, [opened[0]])
        if not all(isinstance(message, Message) for message in opened[1]):
            return _broken("calls", f"reset told {opened[1]!r}, not messages")
        found = [n for n in ("fork", "release", "snapshot", "restore") if hasattr(self._env, n)]
        return _ok("calls", f"reset, step, finish; {', '.join(found) or 'states are values'}")

    async def determinism(self) -> EnvFinding:
        """Equal actions get equal answers, in any episode of any environment of the kind."""
        count = max(5, self._sequences // 10)
        others = [Straight(env, self._problem, self._moves) for env in (self._env, self._later)]
        for number in range(count):
            self._progress("determinism", number, count)
            way: Way = ()
            while len(way) < _DEEPEST and not await self._straight.ends(way):
                way = (*way, self._moves.drawn(self._chance))
                first = await self._straight.answer(way)
                for other in others:
                    if (again := await other.answer(way)) != first:
                        return self._undetermined(way, first, again)
        return _ok("determinism", f"{count} ways, {self._straight.steps} steps without a fork")

    def _undetermined(self, way: Way, first: str, again: str) -> EnvFinding:
        return _broken(
            "determinism",
            f"two fresh episodes answer equal actions otherwise:\n{first}\n{again}\n"
            "take every source of chance from the problem in reset(), and keep it in the state",
            [f"step with {self._moves.shown(move)}" for move in way],
        )

    async def fork_equivalence(self) -> EnvFinding:
        """A chain of forks, each parent released, answers as an episode without forks."""
        count = max(5, self._sequences // 5)
        chains = [self._chain() for _ in range(count)]
        return await self._all("fork equivalence", chains)

    async def isolation(self) -> EnvFinding:
        """What is done on one branch never shows on another."""
        drawn = [self._drawn(_FORKING) for _ in range(self._sequences)]
        return await self._all("isolation", drawn)

    async def restoring(self) -> EnvFinding:
        """A snapshot, through JSON and restored in another environment, answers the same."""
        if not hasattr(self._env, "snapshot"):
            return EnvFinding(
                name="snapshot, restore",
                state="absent",
                detail="none: after a crash, its recorded steps are answered again",
            )
        drawn = [self._drawn(_RESTORING) for _ in range(max(5, self._sequences // 5))]
        return await self._all("snapshot, restore", drawn)

    async def release_twice(self) -> EnvFinding:
        """A second release is refused or does nothing; it never touches another state."""
        if not hasattr(self._env, "release"):
            return EnvFinding(name="release twice", state="absent", detail="nothing is released")
        root, _ = await self._env.reset(self._problem)
        first = await fork_state(self._env, root)
        second = await fork_state(self._env, root)
        await release_states(self._env, [first])
        manner = "does nothing"
        try:
            await release_states(self._env, [first])
        except Exception as error:
            manner = f"is refused: {error}"
        wrong = await self._probe(second) or await self._probe(await fork_state(self._env, root))
        await release_states(self._env, [root])
        if wrong:
            return _broken("release twice", f"the second release harmed another state: {wrong}")
        return _ok("release twice", f"the second release {manner}")

    async def cancellation(self) -> EnvFinding:
        """A fork or step that is cancelled in its middle leaves its parent as it was."""
        root, _ = await self._env.reset(self._problem)
        count = min(24, max(6, self._sequences // 4))
        todo = await moments(self._env, root, count=count)
        try:
            for number, moment in enumerate(todo):
                self._progress("cancellation", number, len(todo))
                wrong = await self._cancelled(root, moment)
                if wrong:
                    return _broken("cancellation", wrong)
        finally:
            await release_states(self._env, [root])
        return _ok("cancellation", f"forks and steps at {len(todo)} moments each")

    async def _cancelled(self, root: Any, moment: Moment) -> str:
        for fork in await cancelled(lambda: fork_state(self._env, root), moment):
            if fork is not root:
                await release_states(self._env, [fork])
        wrong = await self._probe(await fork_state(self._env, root))
        if wrong:
            return f"after a fork cancelled after {moment}, its parent {wrong}"
        fork = await fork_state(self._env, root)
        action = self._moves.action((Move(0),))
        results = await cancelled(lambda: self._env.step(fork, action, None), moment)
        last = results[0].state if results else fork
        if last is not root:
            await release_states(self._env, [last])
        wrong = await self._probe(await fork_state(self._env, root))
        return f"after a step cancelled after {moment}, its parent {wrong}" if wrong else ""

    async def _probe(self, fork: Any) -> str:
        """Step a fork of a first state and release it; how it answers wrongly, if it does."""
        way = (Move(0),)
        result = await self._env.step(fork, self._moves.action(way), None)
        answer, expected = told(result), await self._straight.answer(way)
        await release_states(self._env, [result.state])
        return "" if answer == expected else f"answers {answer}, not {expected}"

    async def measured(self, law: Callable[[], Awaitable[EnvFinding]]) -> EnvFinding:
        """The finding of a law; what it left behind is told by `leaks`."""
        before = self._footprint()
        finding = await law()
        more = await self._settled(lambda: self._footprint().beyond(before))
        self._left += [f"{finding.name} left {what}" for what in more]
        return finding

    async def leaks(self) -> EnvFinding:
        """What the measured laws left behind, and whether released states are kept."""
        left, script = list(self._left), await self._leaking() if self._left else []
        kept = await self._kept_states()
        if kept:
            left.append(f"{kept} released states are still referenced, so memory grows")
        if left:
            return _broken("leaks", "; ".join(left), script)
        return _ok("leaks", "no state, descriptor, process or file is left")

    async def _kept_states(self) -> int:
        if not hasattr(self._env, "release"):
            return 0
        walk = self._walk()
        await walk.run(self._drawn(_FORKING))
        seen = walk.seen
        del walk

        def kept() -> list[object]:
            gc.collect()
            return [reference for reference in seen if reference() is not None]

        return len(await self._settled(kept))

    async def _settled(self, remains: Callable[[], list[T]]) -> list[T]:
        """What remains once nothing is on its way out any more.

        A thread that gave its answer holds it until it gets the processor again, and a process
        that was ended takes a moment to go. After a first leak nothing is waited for.
        """
        rest = remains()
        with anyio.move_on_after(0.0 if self._left else _SETTLING_S):
            while rest:
                await anyio.sleep(_LOOK_AGAIN_S)
                rest = remains()
        return rest

    async def _leaking(self) -> list[str]:
        """The shortest sequence after which something is left, if a sequence does it."""

        processes = any("processes" in what for what in self._left)

        async def leaks(ops: list[Op]) -> bool:
            before = self._held(processes=processes)
            await self._walk().run(ops)
            return bool(self._held(processes=processes).beyond(before))

        for ops in self._tried[:_SUSPECTS]:
            if await leaks(ops):
                walk = self._walk()
                await walk.run(await shrunk(ops, leaks))
                return [*walk.script, "release everything"]
        return []

    def _footprint(self) -> Footprint:
        gc.collect()
        return self._held()

    def _held(self, *, processes: bool = True) -> Footprint:
        return footprint(self._folders, [self._env, self._later], processes=processes)

    async def _all(self, name: str, sequences: list[list[Op]]) -> EnvFinding:
        steps = 0
        for number, ops in enumerate(sequences):
            self._progress(name, number, len(sequences))
            walk = self._walk()
            self._tried.append(ops)
            if not await walk.run(ops):
                return await self._smallest(name, ops, f"sequence {number + 1}")
            steps += walk.steps
        return _ok(name, f"{len(sequences)} sequences, {steps} steps")

    async def _smallest(self, name: str, ops: list[Op], which: str) -> EnvFinding:
        async def fails(fewer: list[Op]) -> bool:
            return not await self._walk().run(fewer)

        walk = self._walk()
        await walk.run(await shrunk(ops, fails))
        if not walk.complaint:
            return _broken(name, f"{which} failed once and then no more: a race", walk.script)
        return _broken(name, walk.complaint, walk.script)

    def _walk(self) -> Walk:
        return Walk(self._env, self._later, self._straight, self._problem, self._moves)

    def _drawn(self, kinds: Sequence[str]) -> list[Op]:
        return draw_ops(self._chance, self._moves, kinds=kinds)

    def _chain(self) -> list[Op]:
        length = self._chance.randint(1, _DEEPEST)
        moves = [self._moves.drawn(self._chance) for _ in range(length)]
        return [Op(kind, 0, move, move) for move in moves for kind in ("step", "release")]


def _ok(name: str, detail: str) -> EnvFinding:
    return EnvFinding(name=name, state="ok", detail=detail)


def _broken(name: str, detail: str, script: Sequence[str] = ()) -> EnvFinding:
    return EnvFinding(name=name, state="broken", detail=detail, script=tuple(script))
