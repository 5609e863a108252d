"""A killed collection goes on from its journal: the same tree, and nothing sampled twice."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Compactor,
    Execution,
    InMemoryWorkspace,
    PromptTokens,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
    ToolEnv,
    Turns,
    storage,
    tool,
)
from focus.agent import Journal
from focus.errors import CollectionFailed, FatalError, FocusError, SchemaError, StoreError
from focus.policies.base import RequestTag
from focus.testing.envs import LiveEnv, WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tokens import Generation, TokenIds

from .conversations import PROBLEM, call

LOOKS: list[str] = []
CONCURRENCY = 4


@tool
def look(key: str) -> str:
    """Look something up; the answer is long."""
    LOOKS.append(key)
    return f"a is 7 {'x' * 90}"


REPLIES = (
    call("look", key="a"),
    call("storage", action="put", path="n", text="7"),
    call("submit", answer="7"),
    call("submit", answer="8"),
    "a is 7",
)


class Dying(ScriptedPolicy):
    """Answers `lives` requests and then fails for good; counts what it answered."""

    def __init__(self, script: Any, *, lives: float = float("inf")) -> None:
        super().__init__(script)
        self.lives = lives

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        if self.requests >= self.lives:
            raise FatalError("the machine is gone")
        return await super().generate(prefix, sampling, tag=tag)


def babble(prompt: str, so_far: str, rng: random.Random) -> str:
    return rng.choice(REPLIES)


def browse(lives: float, journal: Journal | None) -> tuple[Dying, Collector]:
    policy = Dying(babble, lives=lives)
    agent = Agent(
        policy,
        parser=Turns("hermes", tokens=200),
        sampling=Sampling(seed=3),
        allowance=Allowance(tokens=900, turns=6),
        execution=Execution(retry=RetryPolicy(base_s=0.0)),
        workspace=InMemoryWorkspace(tools=[storage]),
        compactor=Compactor(trigger=PromptTokens(400), instruction="Notes.", resume="Go on."),
        journal=journal,
    )
    env = ToolEnv([look], grade=lambda a: float(a["answer"] == "7"), most_calls=9)
    return policy, Collector(
        agent=agent, env=env, search=Search.two_phase(tokens=4000, concurrency=CONCURRENCY)
    )


def walk(lives: float, journal: Journal | None, env: Any = None) -> tuple[Dying, Collector]:
    policy = Dying(walk_script(12), lives=lives)
    agent = Agent(
        policy,
        parser=Segments(3),
        sampling=Sampling(seed=3),
        allowance=Allowance(tokens=13),
        journal=journal,
    )
    search = Search.two_phase(tokens=200, concurrency=CONCURRENCY)
    return policy, Collector(agent=agent, env=env or WalkEnv(), search=search)


def collect(collector: Collector) -> Collection:
    async def main() -> Collection:
        async with collector:
            return await collector.collect(PROBLEM)

    return anyio.run(main)


def edges_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))


def the_same(found: Collection, whole: Collection) -> None:
    assert found.actor == whole.actor
    assert found.critic == whole.critic
    assert found.credit == whole.credit
    assert found.ledger == whole.ledger
    assert found.tree.selections == whole.tree.selections
    assert list(found.tree.edges())[-1].incoming == list(whole.tree.edges())[-1].incoming


@pytest.mark.parametrize("task", [browse, walk])
def test_wherever_it_dies_it_goes_on_to_the_same_tree(task: Any, tmp_path: Path) -> None:
    reference, collector = task(float("inf"), None)
    whole = collect(collector)
    for lives in range(0, reference.requests, max(1, reference.requests // 4)):
        folder = tmp_path / str(lives)
        _, dying = task(lives, Journal(folder))
        with pytest.raises(CollectionFailed):
            collect(dying)
        held = edges_in(folder)
        assert lives - CONCURRENCY < held <= lives, "what was in flight is lost, no more"
        policy, again = task(float("inf"), Journal(folder))
        the_same(collect(again), whole)
        assert policy.requests == reference.requests - held, "an edge was sampled twice"
        policy, again = task(0, Journal(folder))
        the_same(collect(again), whole)


def test_states_are_restored_and_no_tool_is_run_again(tmp_path: Path) -> None:
    _, first = browse(float("inf"), Journal(tmp_path))
    found = collect(first)
    LOOKS.clear()
    _, again = browse(0, Journal(tmp_path))
    recalled = collect(again)
    assert LOOKS == []
    for node, was in zip(recalled.tree, found.tree, strict=True):
        assert node.payload.state == was.payload.state
        assert node.payload.context.ids() == was.payload.context.ids()
        assert (node.payload.allowance, node.payload.fold) == (
            was.payload.allowance,
            was.payload.fold,
        )
        assert anyio.run(node.payload.workspace.snapshot) == anyio.run(
            was.payload.workspace.snapshot
        )
    assert any(anyio.run(n.payload.workspace.snapshot) for n in found.tree)


def test_an_environment_without_snapshots_answers_the_recorded_replies(tmp_path: Path) -> None:
    for env in (WalkEnv(), LiveEnv()):
        journal = Journal(tmp_path / type(env).__name__)
        whole = collect(walk(float("inf"), journal, env)[1])
        other = type(env)()
        policy, again = walk(0, Journal(journal.folder), other)
        the_same(collect(again), whole)
        assert policy.requests == 0
        if isinstance(other, LiveEnv):
            assert other.opened == other.released > 0
        else:  # a state that an edge leaves alone is its parent's
            assert 10 < other.steps <= len(whole.tree) - 1


def test_an_environment_that_answers_otherwise_is_found_out(tmp_path: Path) -> None:
    class Moody(WalkEnv):
        async def step(self, state: int, action: Any, workspace: object) -> Any:
            result = await super().step(state, action, workspace)
            return result if not result.done else type(result)(result.state, reward=0.5, done=True)

    collect(walk(float("inf"), Journal(tmp_path))[1])
    with pytest.raises(CollectionFailed, match="answers otherwise"):
        collect(walk(0, Journal(tmp_path), Moody())[1])


def journal_file(folder: Path) -> Path:
    [path] = folder.glob("*.jsonl")
    return path


def test_a_line_cut_off_at_any_byte_costs_that_edge_only(tmp_path: Path) -> None:
    _, collector = walk(float("inf"), Journal(tmp_path))
    whole = collect(collector)
    data = journal_file(tmp_path).read_bytes()
    start = data.rfind(b"\n", 0, -1) + 1
    for cut in range(start, len(data), 37):
        journal_file(tmp_path).write_bytes(data[:cut])
        policy, again = walk(float("inf"), Journal(tmp_path))
        the_same(collect(again), whole)
        assert policy.requests == 1
        assert journal_file(tmp_path).read_bytes() == data


@pytest.mark.parametrize("spoil", ["flip", "schema", "field"])
def test_damage_before_the_end_is_named(spoil: str, tmp_path: Path) -> None:
    collect(walk(float("inf"), Journal(tmp_path))[1])
    path = journal_file(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[1] = {
        "flip": lines[1].replace(b'"turn', b'"tarn').replace(b'"segment"', b'"segnent"'),
        "schema": lines[1].replace(b"journal/1", b"journal/9"),
        "field": b"{}",
    }[spoil]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(CollectionFailed, match="line 2"):
        collect(walk(0, Journal(tmp_path))[1])


def test_another_policy_or_prompt_does_not_take_the_edges(tmp_path: Path) -> None:
    collect(walk(float("inf"), Journal(tmp_path))[1])
    policy = Dying(walk_script(12))
    policy.version = "trained"
    agent = Agent(
        policy,
        parser=Segments(3),
        sampling=Sampling(seed=3),
        allowance=Allowance(tokens=13),
        journal=Journal(tmp_path),
    )
    other = Collector(agent=agent, env=WalkEnv(), search=Search.two_phase(tokens=200))
    with pytest.raises(CollectionFailed, match="another prefix, sampling or policy"):
        collect(other)
    assert policy.requests == 0


def test_a_journal_is_forgotten_once_its_tree_is_stored(tmp_path: Path) -> None:
    journal = Journal(tmp_path, fsync=True)
    found = collect(walk(float("inf"), journal)[1])
    request = found.tree[1].incoming.provenance.request_id
    tree = request.rsplit("/", 3)[0]
    assert journal.path(tree) == journal_file(tmp_path)
    journal.forget(tree)
    journal.forget(tree)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_refuses_fails_the_expansion(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(CollectionFailed) as caught:
        collect(walk(float("inf"), Journal(blocked / "below"))[1])
    assert isinstance(caught.value.__cause__, StoreError)
    assert issubclass(SchemaError, FocusError)


CHILD = """
import os, sys, signal
sys.path.insert(0, {root!r})
from tests.agent import test_journal as here
from focus.agent import Journal

class Killing(Journal):
    left = {lives}

    async def note(self, tree, entry):
        await super().note(tree, entry)
        Killing.left -= 1
        if not Killing.left:
            os.kill(os.getpid(), signal.SIGKILL)

here.collect(here.browse(float("inf"), Killing({folder!r}))[1])
"""


def test_a_real_kill_in_the_middle_of_a_tree(tmp_path: Path) -> None:
    """SIGKILL after 9 edges; they are there, and none of them is sampled again."""
    root = str(Path(__file__).parents[2])
    code = CHILD.format(root=root, lives=9, folder=str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ}, cwd=root)
    assert killed.returncode == -signal.SIGKILL
    held = edges_in(tmp_path)
    assert held >= 9
    reference, collector = browse(float("inf"), None)
    whole = collect(collector)
    policy, again = browse(float("inf"), Journal(tmp_path))
    the_same(collect(again), whole)
    assert policy.requests == reference.requests - held
