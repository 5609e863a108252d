"""Each way to break a fork is caught, under the law it breaks, with a short script."""

import asyncio
import copy
import os
import random
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.agent import Segments, StepResult, ToolEnv, TurnAction, Turns, tool
from focus.agent.episodes import CopiedEnv, DirectoryEnv, ReplayedEnv, Transition
from focus.errors import ConfigError
from focus.problem import Message, Problem
from focus.rendering import dialect_named
from focus.testing import EnvCase, EnvReport, check_env
from focus.testing.env_check.moves import Move, Moves
from focus.testing.env_check.shrink import shrunk
from focus.testing.envs import LiveEnv, WalkEnv
from focus.testing.episodes import FolderTape, Tape, heard

TALK = Problem(id=1, prompt="Talk.")


def check(env: Callable[[], Any], *, sequences: int = 12) -> EnvReport:
    return check_env(env, problem=TALK, actions=["+", "x"], sequences=sequences)


class InPlace:
    """Says its states are values, and changes them."""

    async def reset(self, problem: Problem) -> tuple[list[str], tuple[Message, ...]]:
        return [], problem.messages

    async def step(self, state: list[str], action: Any, workspace: object) -> StepResult:
        state.append(heard(action))
        return StepResult(state, (Message("user", " ".join(state)),))

    async def finish(self, state: list[str], workspace: object, reason: str) -> float:
        return float(len(state))


class OneDie(CopiedEnv):
    """Branches roll the die of the environment."""

    def __init__(self) -> None:
        super().__init__(Tape)
        self.die = random.Random(0)

    async def reset(self, problem: Problem) -> Any:
        self.die = random.Random(0)
        return await super().reset(problem)

    async def step(self, state: Any, action: Any, workspace: object) -> StepResult:
        result = await super().step(state, action, workspace)
        return StepResult(result.state, (Message("user", str(self.die.random())),))


class Racing(InPlace):
    """Correct one step at a time; two at once share a pen."""

    pen: Any = ()

    async def step(self, state: Any, action: Any, workspace: object) -> StepResult:
        self.pen = (*state, heard(action))
        await anyio.lowlevel.checkpoint()
        return StepResult(self.pen, (Message("user", " ".join(self.pen)),))


class Forgetful(CopiedEnv):
    """A fork begins anew."""

    async def fork(self, state: Any) -> Any:
        fork = await super().fork(state)
        fork.episode.words = fork.episode.words[:1]
        return fork


class Emptying(CopiedEnv):
    """Releasing a fork empties what it was copied from."""

    def __init__(self) -> None:
        super().__init__(Tape, copy=self.copied)
        self.origins: dict[int, Tape] = {}

    def copied(self, tape: Tape) -> Tape:
        fork = copy.deepcopy(tape)
        self.origins[id(fork)] = tape
        return fork

    async def release(self, state: Any) -> None:
        origin = self.origins.pop(id(state.episode), None)
        if origin is not None:
            origin.words.clear()
        await super().release(state)


class Counting(CopiedEnv):
    """Counts releases, and at the second of one state takes a stranger down."""

    def __init__(self) -> None:
        super().__init__(Tape)
        self.gone: list[Any] = []
        self.all: list[Any] = []

    async def fork(self, state: Any) -> Any:
        self.all.append(await super().fork(state))
        return self.all[-1]

    async def release(self, state: Any) -> None:
        if state in self.gone:
            for other in self.all:
                other.episode.words = ["?"]
        self.gone.append(state)
        await super().release(state)


class KeepsFolders(DirectoryEnv):
    def __init__(self) -> None:
        super().__init__(FolderTape)

    async def release(self, state: Any) -> None:
        self._open.drop(state)


class KeepsFiles(CopiedEnv):
    def __init__(self) -> None:
        super().__init__(Tape)
        self.descriptors: list[int] = []

    async def fork(self, state: Any) -> Any:
        self.descriptors.append(os.open(os.devnull, os.O_RDONLY))
        return await super().fork(state)

    async def aclose(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def _sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


class KeepsProcesses(CopiedEnv):
    def __init__(self) -> None:
        super().__init__(Tape)
        self.children: list[subprocess.Popen[bytes]] = []

    async def fork(self, state: Any) -> Any:
        if len(self.children) < 3:
            self.children.append(_sleeper())
        return await super().fork(state)

    async def aclose(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()


class KeepsStates(CopiedEnv):
    def __init__(self) -> None:
        super().__init__(Tape)
        self.history: list[Any] = []

    async def fork(self, state: Any) -> Any:
        self.history.append(await super().fork(state))
        return self.history[-1]


class LetsGoLater(CopiedEnv):
    """Holds a released state a moment longer, as a thread that waits for a processor does."""

    async def release(self, state: Any) -> None:
        asyncio.get_running_loop().call_later(0.05, lambda: state)
        await super().release(state)


class LosesForks(CopiedEnv):
    """A cancelled fork leaves its folder behind."""

    def __init__(self) -> None:
        super().__init__(Tape)

    async def fork(self, state: Any) -> Any:
        fork = await super().fork(state)
        vars(fork.episode)["folder"] = tempfile.mkdtemp()
        for _ in range(4):
            await anyio.lowlevel.checkpoint()
        return fork

    async def release(self, state: Any) -> None:
        folder = vars(state.episode).pop("folder", None)
        if folder is not None:
            os.rmdir(folder)
        await super().release(state)


class Borrowing(CopiedEnv):
    """A fork borrows the parent's words, and a cancelled one never gives them back."""

    def __init__(self) -> None:
        super().__init__(Tape)
        self.lock = anyio.Lock()

    async def fork(self, state: Any) -> Any:
        async with self.lock:
            words, state.episode.words = state.episode.words, []
            for _ in range(4):
                await anyio.lowlevel.checkpoint()
            state.episode.words = words
            return await super().fork(state)


class HalfASnapshot(CopiedEnv):
    async def snapshot(self, state: Any) -> Any:
        kept = await super().snapshot(state)
        return {**kept, "moves": kept["moves"][1:]}


class NoRelease(InPlace):
    async def fork(self, state: list[str]) -> list[str]:
        return list(state)


SEEDS = iter(range(10**9))

FAULTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "a shared mutable list": ("isolation", InPlace),
    "a shallow copy": ("isolation", lambda: CopiedEnv(Tape, copy=copy.copy)),
    "one die for all branches": ("isolation", OneDie),
    "two steps at once": ("isolation", Racing),
    "a release that empties the parent": ("isolation", Emptying),
    "a fork that begins anew": ("fork equivalence", lambda: Forgetful(Tape)),
    "an unseeded episode": ("determinism", lambda: CopiedEnv(lambda: Tape(seed=next(SEEDS)))),
    "an unseeded episode, replayed": (
        "determinism",
        lambda: ReplayedEnv(lambda: Tape(seed=next(SEEDS))),
    ),
    "a second release that harms": ("release twice", Counting),
    "a leaking directory": ("leaks", KeepsFolders),
    "a leaking descriptor": ("leaks", KeepsFiles),
    "a leaking process": ("leaks", KeepsProcesses),
    "released states that are kept": ("leaks", KeepsStates),
    "a fork lost by cancellation": ("leaks", LosesForks),
    "a parent harmed by cancellation": ("cancellation", Borrowing),
    "half a snapshot": ("snapshot, restore", lambda: HalfASnapshot(Tape)),
    "a fork without release": ("calls", NoRelease),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: str) -> None:
    law, env = FAULTS[fault]
    report = check(env)
    assert not report.ok
    assert law in report.broken, report
    found = next(each for each in report.findings if each.name == law)
    assert len(found.script) <= 6, report
    assert f"FAIL  {law}" in str(report)
    assert all(
        each["script"] == list(f.script)
        for each, f in zip(report.to_plain(), report.findings, strict=True)
    )


SOUND: dict[str, Callable[[], Any]] = {
    "live states": LiveEnv,
    "values": WalkEnv,
    "copies": lambda: CopiedEnv(Tape),
    "states let go a moment later": lambda: LetsGoLater(Tape),
    "replays": lambda: ReplayedEnv(Tape),
    "folders": lambda: DirectoryEnv(FolderTape),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_environment_passes(name: str) -> None:
    report = check(SOUND[name])
    assert report.ok, report


def test_sequences_depend_on_the_seed_only() -> None:
    assert check(lambda: CopiedEnv(Tape)) == check(lambda: CopiedEnv(Tape))


def test_an_episode_that_raises_is_no_sound_environment() -> None:
    class Choking(Tape):
        def step(self, action: Any) -> Transition:
            if len(self.words) > 2:
                raise ValueError("too long")
            return super().step(action)

    report = check(lambda: CopiedEnv(Choking))
    assert report.broken == ("determinism",)
    assert "too long" in str(report)


def test_an_environment_without_the_three_methods_is_named() -> None:
    class Half:
        async def reset(self, problem: Problem) -> Any:
            return None, ()

    assert "async def step" in str(check(Half))


def test_texts_become_what_a_parser_makes_of_them() -> None:
    moves = Moves(["ab", "c"], Segments(9))
    action = moves.action((Move(0), Move(1, is_last=True)))
    assert (action.text, action.finished, action.ids) == ("abc", True, (99,))
    turns = Moves(["plain text", 5], Turns("hermes"))
    assert moves.shown(Move(1, is_last=True)) == "'c', the end"
    assert turns.action((Move(0), Move(0))) == TurnAction("plain text")
    assert turns.action((Move(1),)) == 5
    for wrong in ({"actions": []}, {"sequences": 0}):
        with pytest.raises(ConfigError, match="at least one"):
            check_env(**{"env_factory": InPlace, "problem": TALK, "actions": ["a"], **wrong})
    with pytest.raises(ConfigError):
        EnvCase(env=InPlace, problem=TALK, actions=())


@given(st.lists(st.integers(0, 9), max_size=12), st.sets(st.integers(0, 9), min_size=1))
def test_a_shrunk_sequence_still_fails_and_nothing_more_can_go(
    items: list[int], needed: set[int]
) -> None:
    async def fails(found: list[int]) -> bool:
        return needed <= set(found)

    async def main() -> None:
        if await fails(items):
            best = await shrunk(items, fails)
            assert sorted(best) == sorted(needed)

    anyio.run(main)


@tool
def look(key: str) -> str:
    """Look something up.

    Args:
        key: what.
    """
    return f"{key} is 7"


def test_tools_pass_and_their_calls_are_read_as_an_agent_reads_them() -> None:
    write = dialect_named("hermes").write
    replies = [write("look", {"key": "a"}), write("submit", {"answer": "7"}), "hm"]
    report = check_env(
        lambda: ToolEnv([look], grade=lambda answer: float(answer["answer"] == "7")),
        problem=TALK,
        actions=replies,
        parser=Turns("hermes"),
        sequences=12,
    )
    assert report.ok, report
    assert report.broken == ()


def tally() -> Callable[..., Any]:
    """A tool that remembers outside of the state, as tools must not."""
    calls: list[str] = []

    def count(key: str) -> str:
        """Count.

        Args:
            key: ignored.
        """
        calls.append(key)
        return str(len(calls))

    return count


def test_a_tool_that_remembers_is_found_out() -> None:
    counting = tally()
    report = check_env(
        lambda: ToolEnv([tool(counting)], grade=lambda answer: 0.0),
        problem=TALK,
        actions=[dialect_named("hermes").write("count", {"key": "a"})],
        parser=Turns("hermes"),
        sequences=5,
    )
    assert report.broken == ("determinism",), report
