"""What a critic of texts sees of a workspace, at scoring and in the record alike."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    DirectoryWorkspace,
    InMemoryWorkspace,
    Problem,
    Search,
    ToolEnv,
    Turns,
    storage,
)
from focus.errors import ConfigError
from focus.records import CriticContext
from focus.rendering import dialect_named
from focus.testing.policies import ScriptedPolicy

WRITE = dialect_named("hermes").write
REPLIES = (
    WRITE("storage", {"action": "put", "path": "n", "text": "seven"}),
    WRITE("storage", {"action": "put", "path": "n", "text": "eight"}),
    WRITE("submit", {"answer": "7"}),
)
SEEN: list[CriticContext] = []


async def notes_help(contexts: Sequence[CriticContext]) -> list[float]:
    SEEN.extend(contexts)
    return [0.9 if "seven" in (c.workspace or {}).values() else 0.2 for c in contexts]


def collected(workspace: InMemoryWorkspace | DirectoryWorkspace) -> Collection:
    agent = Agent(
        ScriptedPolicy(lambda prompt, so_far, rng: rng.choice(REPLIES)),
        parser=Turns("hermes", tokens=120),
        allowance=Allowance(tokens=700, turns=4),
        workspace=workspace,
    )
    collector = Collector(
        agent=agent,
        env=ToolEnv([], grade=lambda answer: float(answer["answer"] == "7")),
        search=Search.two_phase(tokens=2_000),
        critic=Critic.function(notes_help, version="notes/1", renderer="text_files/1"),
    )

    async def main() -> Collection:
        async with collector:
            return await collector.collect(Problem(id="ask", prompt="What is a?"))

    return anyio.run(main)


def test_a_critic_sees_the_files_of_each_branch_and_the_record_holds_them() -> None:
    SEEN.clear()
    found = collected(InMemoryWorkspace({"given": "text"}, tools=[storage]))
    contexts = [record.context for record in found.critic]
    assert {c.workspace["n"] for c in contexts if c.workspace and "n" in c.workspace} == {
        "seven",
        "eight",
    }
    for context in contexts:
        assert context in SEEN, "a record holds what was scored"
        assert context.ids is None
        assert context.workspace is not None
        assert context.workspace["given"] == "text"
        assert all(f"\n--- {p}\n{t}" in context.text for p, t in context.workspace.items())
    for record in found.critic:
        notes = (record.context.workspace or {}).values()
        assert record.prior == (0.9 if "seven" in notes else 0.2)


def test_files_that_are_not_in_memory_are_refused_before_any_token() -> None:
    with pytest.raises(ConfigError, match="use InMemoryWorkspace"):
        collected(DirectoryWorkspace(tools=[storage]))
