"""Trees on episodes: what a real collection asks of every kind, and what it gives back."""

import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus import Agent, Allowance, Collection, Collector, Execution, Sampling, Search, Turns
from focus.agent.episodes import CopiedEnv, DirectoryEnv, ProcessEnv, ReplayedEnv, Transition
from focus.errors import CollectionFailed, EnvError
from focus.testing.episodes import FolderTape, Tape, heard
from focus.testing.policies import ScriptedPolicy

from .kinds import PROBLEM


class Sticky(Tape):
    """Hangs at a word, as a simulator does."""

    def step(self, action: Any) -> Transition:
        if "hang" in heard(action):
            signal.pause()
        return super().step(action)


def collector(env: Any, words: tuple[str, ...], *, deadline_s: float = 60.0) -> Collector:
    agent = Agent(
        ScriptedPolicy(lambda prompt, so_far, rng: rng.choice(words)),
        parser=Turns("hermes", tokens=12),
        sampling=Sampling(seed=3),
        allowance=Allowance(tokens=60, turns=4),
        execution=Execution(env_deadline_s=deadline_s),
    )
    return Collector(agent=agent, env=env, search=Search.two_phase(tokens=120, concurrency=4))


async def collected(env: Any, words: tuple[str, ...], **options: Any) -> Collection:
    async with collector(env, words, **options) as one:
        return await one.collect(PROBLEM)


def test_every_kind_grows_the_same_tree_and_keeps_no_state(tmp_path: Path) -> None:
    words = ("+", "x", "+", "+stop")

    async def main() -> None:
        trees = []
        async with ProcessEnv("focus.testing.episodes:Tape") as apart:
            for env in (CopiedEnv(Tape), ReplayedEnv(Tape), apart):
                found = await collected(env, words)
                trees.append([(edge.incoming, edge.value) for edge in found.tree.edges()])
                assert env.open_states == 0
            folders = DirectoryEnv(FolderTape, scratch=tmp_path)
            assert len((await collected(folders, words)).tree) == len(trees[0]) + 1
        assert len(trees[0]) > 8
        assert trees[0] == trees[1] == trees[2]

    anyio.run(main)
    assert not list(tmp_path.iterdir())


def test_a_hanging_step_ends_its_process_and_the_collection() -> None:
    async def main() -> None:
        async with ProcessEnv("tests.agent.episodes.test_collecting:Sticky") as env:
            await env.release((await env.reset(PROBLEM))[0])  # the import has its own deadline
            with pytest.raises(CollectionFailed) as caught:
                await collected(env, ("hang",), deadline_s=4.0)
            assert isinstance(caught.value.__cause__, EnvError)
            assert "no answer from env.step within 4 s" in str(caught.value.__cause__)
            assert env.open_states == 0

    anyio.run(main)


def test_an_unseeded_episode_fails_the_collection_that_replays_it() -> None:
    seeds = iter(range(10**6))

    async def main() -> None:
        env = ReplayedEnv(lambda: Tape(seed=next(seeds)))
        with pytest.raises(CollectionFailed, match="made again, the episode answers"):
            await collected(env, ("+", "x"))
        assert env.open_states == 0

    anyio.run(main)
