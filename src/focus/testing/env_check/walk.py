"""One sequence of forks, steps, releases and restores on one environment."""

from __future__ import annotations

import json
import random
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from focus._cancellation import siblings
from focus.agent.env import Env, fork_state, release_states
from focus.problem import Problem
from focus.testing.env_check.moves import Move, Moves, Path
from focus.testing.env_check.straight import Straight, told

__all__ = ("Op", "Walk", "draw_ops")


@dataclass(frozen=True, slots=True)
class Op:
    """One thing to do; `pick` chooses among the open states, so any subsequence is legal."""

    kind: str
    pick: int
    move: Move
    other: Move


def draw_ops(
    chance: random.Random, moves: Moves, *, kinds: Sequence[str], most: int = 14
) -> list[Op]:
    """A random sequence of things to do."""
    return [
        Op(
            kind=chance.choice(kinds),
            pick=chance.randrange(1_000),
            move=moves.drawn(chance),
            other=moves.drawn(chance),
        )
        for _ in range(chance.randint(2, most))
    ]


@dataclass(eq=False)
class _Branch:
    name: str
    state: Any
    path: Path
    is_done: bool = False


@dataclass(eq=False)
class Walk:
    """Takes a sequence and compares each answer with that of an episode without forks.

    Attributes:
        later: another environment of the same kind, where snapshots are restored.
        script: what was done, a line each.
        complaint: what was wrong, "" for nothing.
        steps, states: how many there were.
        seen: the states, for as long as somebody else keeps them.
    """

    env: Env
    later: Env
    straight: Straight
    problem: Problem
    moves: Moves
    script: list[str] = field(default_factory=list)
    complaint: str = ""
    steps: int = 0
    states: int = 0
    seen: list[weakref.ref[Any]] = field(default_factory=list)
    _branches: list[_Branch] = field(default_factory=list)
    _foreign: list[Any] = field(default_factory=list)

    async def run(self, ops: Sequence[Op]) -> bool:
        """Whether all went well; afterwards everything is released."""
        try:
            root, _ = await self.env.reset(self.problem)
            self._add("the first state", root, ())
            for op in ops:
                await self._do(op)
            await self._probe(ops)
        except Exception as error:
            self._complain(f"raised {error!r}")
        await self._release_all()
        return not self.complaint

    async def _do(self, op: Op) -> None:
        open_states = [b for b in self._branches if not b.is_done]
        if not open_states or self.complaint:
            return
        branch = open_states[op.pick % len(open_states)]
        match op.kind:
            case "step":
                await self._step(branch, op.move)
            case "both":
                async with siblings() as group:
                    for move in (op.move, op.other):
                        group.start_soon(self._step, branch, move)
            case "fork":
                self.script.append(f"fork {branch.name} and release the fork")
                fork = await fork_state(self.env, branch.state)
                if fork is not branch.state:
                    await release_states(self.env, [fork])
            case "release" if len(open_states) > 1:
                self.script.append(f"release {branch.name}")
                self._branches.remove(branch)
                await release_states(self.env, [branch.state])
            case "finish":
                await self._finish(branch)
            case "restore":
                await self._restore(branch, op.move)

    async def _step(self, branch: _Branch, move: Move) -> None:
        path = (*branch.path, move)
        name = f"state {self.states}"
        self.states += 1
        line = len(self.script)
        self.script.append(f"step a fork of {branch.name} with {self.moves.shown(move)} → {name}")
        fork = await fork_state(self.env, branch.state)
        result = await self._stepped(fork, branch.state, path)
        answer = told(result)
        self._add(name, result.state, path, is_done=result.done)
        await self._compare(answer, path, line)

    async def _stepped(self, fork: Any, parent: Any, path: Path) -> Any:
        try:
            self.steps += 1
            return await self.env.step(fork, self.moves.action(path), None)
        except BaseException:
            if fork is not parent:
                await release_states(self.env, [fork])
            raise

    async def _finish(self, branch: _Branch) -> None:
        line = len(self.script)
        self.script.append(f"finish a fork of {branch.name}")
        fork = await fork_state(self.env, branch.state)
        try:
            outcome = await self.env.finish(fork, None, "allowance")
        finally:
            if fork is not branch.state:
                await release_states(self.env, [fork])
        expected = await self.straight.outcome(branch.path)
        if repr(float(outcome)) != expected:
            self._complain(f"outcome {outcome!r}, without forks {expected}", line)

    async def _restore(self, branch: _Branch, move: Move) -> None:
        """A snapshot through JSON, restored where nothing is known of this episode."""
        snapshot: Any = getattr(self.env, "snapshot", None)
        restore: Any = getattr(self.later, "restore", None)
        if snapshot is None or restore is None:
            return
        line = len(self.script)
        self.script.append(
            f"restore a snapshot of {branch.name} elsewhere, step with {self.moves.shown(move)}"
        )
        kept = json.dumps(await snapshot(branch.state), allow_nan=False)
        state = await restore(json.loads(kept))
        self._foreign.append(state)
        path = (*branch.path, move)
        result = await self.later.step(state, self.moves.action(path), None)
        self._foreign[-1] = result.state
        self.steps += 1
        await self._compare(told(result), path, line)

    async def _probe(self, ops: Sequence[Op]) -> None:
        """One more step from every open state: does it still answer as it should?"""
        if self.complaint or not ops:
            return
        for branch in [b for b in self._branches if not b.is_done]:
            await self._step(branch, ops[-1].move)
            if self.complaint:
                return

    async def _compare(self, answer: str, path: Path, line: int) -> None:
        expected = await self.straight.answer(path)
        if answer != expected:
            self._complain(f"answered  {answer}\nwithout forks  {expected}", line)

    def _complain(self, text: str, line: int = -1) -> None:
        if not self.complaint:
            self.complaint = text
            if self.script:
                self.script[line] += "   ←"

    def _add(self, name: str, state: Any, path: Path, *, is_done: bool = False) -> None:
        self._branches.append(_Branch(name, state, path, is_done))
        with suppress(TypeError):  # plain values cannot be watched, and hold nothing
            self.seen.append(weakref.ref(state))

    async def _release_all(self) -> None:
        states, self._branches = [b.state for b in self._branches], []
        foreign, self._foreign = self._foreign, []
        for env, held in ((self.env, states), (self.later, foreign)):
            try:
                await release_states(env, held)
            except Exception as error:
                self._complain(f"a release raised {error!r}")
