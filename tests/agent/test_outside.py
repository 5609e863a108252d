"""Trees of real tasks with many turns, judged by the checker that knows nothing of FOCUS."""

import copy
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Problem,
    Sampling,
    Search,
    TransformersPolicy,
    Turns,
)
from focus.policies.base import RequestTag
from focus.promises.gauntlet import checked
from focus.records.codec import encode_critic
from focus.records.packed_codec import encode_sample
from focus.records.tree_codec import encode_tree
from focus.rendering import dialect_named
from focus.tasks.browse import Library, WordCounts, World
from focus.tasks.browse.habits import browsing_agent
from focus.tasks.code import repair_env, repair_files, repair_problems
from focus.tasks.text_games import game_env, make_game
from focus.testing.policies import ScriptedPolicy, Wrapper
from focus.tokens import Generation, TokenIds

LAW = {"temperature": 1.0, "top_p": 1.0, "top_k": None}
TURNS = 8
WRITE = dialect_named("hermes").write
Packing = Literal["segment", "path"]


class Booked(Wrapper):
    """Keeps a server's books: what each request was asked with and answered."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.books: list[dict[str, Any]] = []

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        reply = await super().generate(prefix, sampling, tag=tag)
        assert tag is not None
        self.books.append(
            {
                "rid": tag.request,
                "prefix": list(prefix),
                "most": sampling.max_tokens,
                "ids": list(reply.ids),
                "log_probs": list(reply.log_probs),
                "finish": reply.finish.value,
                "version": reply.version,
                "fault": None,
                "kind": "clean",
                "detectable": True,
                "whole": True,
            }
        )
        return reply


Opened = tuple[Booked, Agent, Any, Problem]


def talking(script: Callable[[str, str, random.Random], str], **parts: Any) -> tuple[Booked, Agent]:
    policy = Booked(ScriptedPolicy(script, context_limit=8192))
    agent = Agent(
        policy,
        parser=Turns("hermes"),
        sampling=Sampling(seed=5),
        allowance=Allowance(tokens=2000, turns=TURNS),
        **parts,
    )
    return policy, agent


@asynccontextmanager
async def game(folder: Path) -> AsyncIterator[Opened]:
    """A player who knows the way and errs now and then."""
    problem = make_game(folder, seed=1, rooms=2, objects=4, quest=3)
    way = problem.metadata["walkthrough"]

    def script(prompt: str, so_far: str, rng: random.Random) -> str:
        done = sum(f'"{command}"' in prompt for command in way)
        command = way[done] if done < len(way) and rng.random() < 0.7 else "look"
        return WRITE("act", {"command": command})[len(so_far) :]

    policy, agent = talking(script)
    yield policy, agent, game_env(), problem


@asynccontextmanager
async def repair(folder: Path) -> AsyncIterator[Opened]:
    """A programmer who tries a mend, runs the tests, and hands in sooner or later."""
    [problem] = repair_problems(1, seed=1)

    def script(prompt: str, so_far: str, rng: random.Random) -> str:
        mends = [("total = 0", "total = 1"), ("total = 1", "total = 0"), (" <= 8", " < 8")]
        old, new = rng.choice(mends)
        edit = {"path": "tally.py", "old": old, "new": new}
        calls = [("edit_file", edit), ("run_tests", {}), ("hand_in", {})]
        name, arguments = rng.choice(calls)
        return WRITE(name, arguments)[len(so_far) :]

    files = await repair_files(problem)
    policy, agent = talking(script, workspace=files)
    yield policy, agent, repair_env(problem), problem
    await files.release()


@asynccontextmanager
async def browse(folder: Path) -> AsyncIterator[Opened]:
    """The shipped model, which folds its context."""
    library = Library(World.draw(0), ranking=WordCounts)
    problem = library.world.problems(1, seed=2, split="heldout", hops=(2,))[0]
    async with TransformersPolicy("agent", profile="hermes", device="cpu", version="w") as model:
        policy = Booked(model)
        yield policy, browsing_agent(policy, seed=1), library.env(problem), problem


TASKS: dict[str, Any] = {"game": game, "repair": repair, "browse": browse}


def exported(task: str, packing: Packing, folder: Path) -> tuple[Collection, dict[str, Any]]:
    """One tree of a task, written for the checker."""

    async def main() -> tuple[Collection, Booked, Agent, Problem]:
        async with TASKS[task](folder) as (policy, agent, env, problem):
            search = Search.two_phase(tokens=600 if task == "browse" else 2500, concurrency=2)
            async with Collector(agent=agent, env=env, search=search, packing=packing) as collector:
                return await collector.collect(problem), policy, agent, problem

    found, policy, agent, problem = anyio.run(main)
    line = {
        "tree": encode_tree(found.tree),
        "actor": [encode_sample(record) for record in found.actor],
        "critic": [encode_critic(record) for record in found.critic],
        "books": {},
        "failures": [],
        "accepted": True,
        "settings": {
            "allowance": agent.allowance.tokens,
            "turns": agent.allowance.turns,
            "most_reward": 1.0,
            "trainer_law": LAW,
            "key": problem.key,
        },
    }
    _write(folder / "server.jsonl", policy.books)
    _write(folder / "trees.jsonl", [line])
    return found, line


def _write(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))


@pytest.mark.xdist_group("textworld")
@pytest.mark.parametrize(
    ("task", "packing"),
    [("game", "segment"), ("repair", "path"), ("browse", "path")],
)
def test_every_exported_token_of_many_turns_passes_outside(
    task: str, packing: Packing, tmp_path: Path
) -> None:
    found, _ = exported(task, packing, tmp_path)
    tree, verdict = found.tree, checked(tmp_path)
    assert verdict["findings"] == []
    trained = verdict["trained"]
    assert trained["samples"] == len(found.actor) > 3
    sampled = sum(node.incoming.sampled_tokens for node in tree.edges())
    assert trained["trained_ids"] + trained["withheld_unvalued"] == sampled > 0
    assert {tree.outcome(leaf) for leaf in tree.terminals()} == {0.0, 1.0}
    branched = [node for node in tree.edges() if len(tree.children(node.id)) > 1]
    assert branched, "no branch in the middle"
    assert any(node.rebased is not None for node in tree) == (task == "browse")
    masked = [flag for record in found.actor for flag in record.loss_mask]
    assert (0 in masked) == (packing == "path"), "observations stand in path records"


Spoil = Callable[[dict[str, Any]], None]


def _rebased(line: dict[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = next(n for n in line["tree"]["nodes"] if n["rebased"])
    return node


def _observed(line: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A record with an observation, and where it stands."""
    record = next(r for r in line["actor"] if 0 in r["loss_mask"])
    return record, record["loss_mask"].index(0)


def _shift_fold(line: dict[str, Any]) -> None:
    _rebased(line)["rebased"][0] += 1


def _train_observation(line: dict[str, Any]) -> None:
    record, place = _observed(line)
    record["loss_mask"][place] = 1


def _log_prob_of_observation(line: dict[str, Any]) -> None:
    record, place = _observed(line)
    record["log_probs"][place] = -0.5


def _other_observation(line: dict[str, Any]) -> None:
    record, place = _observed(line)
    record["response"][place] += 1


def _drop_last(line: dict[str, Any]) -> None:
    record = line["actor"][0]
    for column in ("response", "loss_mask", "log_probs", "weights"):
        record[column] = record[column][:-1]


def _overspend(line: dict[str, Any]) -> None:
    line["settings"]["turns"] = 1


@pytest.mark.xdist_group("textworld")
def test_the_checker_finds_what_is_wrong_with_a_conversation(tmp_path: Path) -> None:
    _, line = exported("browse", "path", tmp_path)
    spoils: list[tuple[Spoil, str]] = [
        (_shift_fold, "I8"),
        (_train_observation, "I4"),
        (_log_prob_of_observation, "I5"),
        (_other_observation, "I4"),
        (_drop_last, "I4"),
        (_overspend, "I14"),
    ]
    for spoil, invariant in spoils:
        spoiled = copy.deepcopy(line)
        spoil(spoiled)
        _write(tmp_path / "trees.jsonl", [spoiled])
        assert invariant in checked(tmp_path)["by_invariant"], spoil.__name__
