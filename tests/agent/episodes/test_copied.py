"""Episodes that fork by copy and by replay: what is counted, refused and taken again."""

from typing import Any

import anyio
import pytest

from focus.agent.episodes import CopiedEnv, ReplayedEnv, Transition
from focus.errors import ConfigError, EnvError, LifecycleError, NondeterminismError
from focus.problem import Problem
from focus.testing.episodes import Tape

PROBLEM = Problem(id="p", prompt="Talk.")
KINDS: list[Any] = [CopiedEnv, ReplayedEnv]


@pytest.mark.parametrize("kind", KINDS)
def test_a_branch_hears_its_own_words_only(kind: Any) -> None:
    async def main() -> None:
        env = kind(Tape)
        root, messages = await env.reset(PROBLEM)
        assert messages == PROBLEM.messages
        told = []
        for word in ("a", "b", "a"):
            fork = await env.fork(root)
            result = await env.step(fork, word, None)
            told.append(result.messages)
            assert result.state is fork
            await env.release(fork)
        assert told[0] == told[2] != told[1]
        await env.release(root)
        await env.release(root)
        assert env.open_states == 0
        with pytest.raises(LifecycleError):
            await env.fork(root)

    anyio.run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_is_the_way_there(kind: Any) -> None:
    async def main() -> None:
        env, later = kind(Tape), kind(Tape)
        state, _ = await env.reset(PROBLEM)
        for word in ("+", "x"):
            await env.step(state, word, None)
        again = await later.restore(await env.snapshot(state))
        assert await later.snapshot(again) == await env.snapshot(state)
        assert (await later.step(again, "y", None)).messages == (
            await env.step(state, "y", None)
        ).messages
        assert await later.finish(again, None, "context") == pytest.approx(1 / 3)

    anyio.run(main)


def test_a_path_is_never_replayed_and_a_branch_once() -> None:
    async def main() -> None:
        env = ReplayedEnv(Tape)
        root, _ = await env.reset(PROBLEM)
        state = root
        for word in "abcd":
            state = await env.fork(state)
            await env.step(state, word, None)
        assert env.replays == 0
        await env.step(await env.fork(root), "e", None)
        assert env.replays == 1

    anyio.run(main)


def test_an_episode_with_chance_of_its_own_is_refused_by_replay() -> None:
    seeds = iter(range(100))

    async def main() -> None:
        env = ReplayedEnv(lambda: Tape(seed=next(seeds)))
        root, _ = await env.reset(PROBLEM)
        first = await env.fork(root)
        for word in "abcd":
            await env.step(first, word, None)
        branch = await env.fork(first)
        await env.step(branch, "e", None)
        with pytest.raises(NondeterminismError, match=r"answers step \d of 4 otherwise"):
            await env.step(await env.fork(first), "e", None)

    anyio.run(main)


def test_what_an_episode_holds_is_closed_once() -> None:
    closed = []

    class Holding(Tape):
        def close(self) -> None:
            closed.append(self)

        def step(self, action: Any) -> Transition:
            if action == "break":
                raise ValueError("broken")
            return super().step(action)

    async def main() -> None:
        for kind in KINDS:
            env = kind(Holding)
            root, _ = await env.reset(PROBLEM)
            fork = await env.fork(root)
            with pytest.raises(ValueError, match="broken"):
                await env.step(fork, "break", None)
            for state in (fork, fork, root):
                await env.release(state)
        assert len(closed) == len(set(map(id, closed))) == 3

    anyio.run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_that_is_no_number_is_named(kind: Any) -> None:
    class Broken(Tape):
        def step(self, action: Any) -> Transition:
            return Transition(reward=float("inf"), done=True)

    async def main() -> None:
        env = kind(Broken)
        root, _ = await env.reset(PROBLEM)
        with pytest.raises(EnvError, match=r"answered Transition.*reward=inf"):
            await env.step(root, "a", None)

    anyio.run(main)


def test_a_wrong_number_of_threads_is_refused() -> None:
    with pytest.raises(ConfigError, match="threads"):
        CopiedEnv(Tape, threads=0)
