"""An environment of verifiers, unchanged: its tasks, tool server and rewards, our policy."""

import importlib
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus.agent import TurnAction
from focus.errors import EnvError, ProblemError
from focus.integrations.chat.verifiers import (
    single_agent_env,
    verifiers_env,
    verifiers_problems,
)
from focus.problem import Problem
from focus.rendering import Call

pytest.importorskip("verifiers.v1", reason="comes with the extra verifiers")

pytestmark = [
    pytest.mark.xdist_group("verifiers"),
    pytest.mark.filterwarnings("default"),  # of its many packages, none of them ours to mend
]
FOLDER = str(Path(__file__).parent)


@pytest.fixture
def make_env(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Task sets are found by the name of a module; their tool servers in a process of theirs."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("PYTHONPATH", FOLDER, prepend=os.pathsep)
    tasks = importlib.import_module("letters_tasks")
    return lambda: single_agent_env(tasks.LettersConfig(id="letters_tasks"))


def said(text: str, *calls: Call) -> TurnAction:
    return TurnAction(text, calls)


def test_an_episode_forks_in_the_middle_and_is_worth_its_reward(make_env: Any) -> None:
    _, problem = verifiers_problems(make_env, 2)
    assert problem.prompt == "How many e in tree?"

    async def main() -> None:
        env = verifiers_env(make_env)
        root, messages = await env.reset(problem)
        assert [m.content for m in messages] == ["Count.", "How many e in tree?"]
        [count] = env.tools
        call = Call(count.name, {"word": "tree", "letter": "e"})
        middle = await env.fork(root)
        answer = await env.step(middle, said("", call), None)
        assert [m.content for m in answer.messages] == ["2"]
        right, wrong = await env.fork(middle), await env.fork(middle)
        assert (await env.step(right, said("2"), None)).reward == 1.0
        assert (await env.step(wrong, said("3"), None)).reward == 0.0
        assert env.replays == 1
        for state in (root, middle, right, wrong):
            await env.release(state)
        assert env.open_states == 0

    anyio.run(main)


def test_a_task_that_is_not_there_is_named(make_env: Any) -> None:
    with pytest.raises(ProblemError, match="count=0"):
        verifiers_problems(make_env, 0)
    problem = Problem(id="x", prompt="?", metadata={"task": 9})
    with pytest.raises(EnvError, match="the task set has no task 9"):
        anyio.run(verifiers_env(make_env).reset, problem)
