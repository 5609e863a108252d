"""Tasks by name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from focus.errors import ConfigError, ProblemError, StoreError
from focus.tasks import GymEnv, MathEnv, load_task
from focus.tasks.arithmetic import split_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [{"problem": f"What is {n} + 1?", "solution": rf"\boxed{{{n + 1}}}"} for n in range(60)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


async def test_the_demo_can_be_won():
    task = load_task("demo")
    (problem,) = task.problems("train", 1)
    env = task.env_for(problem)
    state, messages = await env.reset(problem)
    assert messages[-1].content == problem.prompt
    assert isinstance(env, MathEnv)
    assert env.kind == "math"
    won = dataclasses.replace(state, text=rf"\boxed{{{problem.label}}}")
    assert await env.finish(won, None, "allowance") == 1.0


@pytest.mark.parametrize("name", ["gym:chain_sum", "chain_sum"])
def test_a_generator_by_either_name(name):
    task = load_task(name)
    assert task.name == name
    problems = task.problems("gate", 3, seed=2)
    assert len(problems) == 3
    assert isinstance(task.env_for(problems[0]), GymEnv)


@pytest.mark.parametrize("form", ["file:{}", "{}"])
def test_a_file_by_either_name(rows, form):
    task = load_task(form.format(rows))
    (problem,) = task.problems("train", 1)
    assert isinstance(task.env_for(problem), MathEnv)


def test_a_file_is_split_by_key_and_drawn_by_seed(rows):
    task = load_task(f"file:{rows}")
    train = task.problems("train", 20, seed=1)
    assert train == task.problems("train", 20, seed=1)
    assert train != task.problems("train", 20, seed=2)
    assert len({problem.key for problem in train}) == 20
    for split in ("train", "heldout", "gate"):
        assert {split_of(problem.key) for problem in task.problems(split, 2)} == {split}


def test_a_file_with_too_few_training_rows_says_so(rows):
    with pytest.raises(ProblemError, match="61 were asked for"):
        load_task(f"file:{rows}").problems("train", 61)
    assert 1 <= len(load_task(f"file:{rows}").problems("heldout", 61)) < 30


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"problem": "x", "solution": ""}', "line 61"),
        ('{"problem": "x", "solution": "1331 and 1728"}', "several"),
        ('{"problem": "x", "solution": "\\\\boxed{4"}', "complete box"),
        ("{broken", "line 61"),
    ],
)
def test_b58_b62_rows_that_cannot_be_won_are_refused_by_name(rows, line, why):
    rows.write_text(rows.read_text() + line + "\n")
    with pytest.raises(ProblemError, match=why):
        load_task(f"file:{rows}")


def test_a_missing_file_is_an_error_of_the_store(tmp_path):
    with pytest.raises(StoreError):
        load_task(f"file:{tmp_path / 'none.jsonl'}")


@pytest.mark.parametrize("name", ["", "dmeo", "gym:", "gym:chain_sums", "rows.json"])
def test_an_unknown_task_is_refused_with_the_known_ones(name):
    with pytest.raises(ConfigError, match="known"):
        load_task(name)


@pytest.mark.parametrize("name", ["gym:countdown", "countdown"])
def test_a_refused_generator_is_refused_with_its_reason(name):
    with pytest.raises(ConfigError, match="evaluates the answer's text"):
        load_task(name)


@pytest.mark.parametrize("bad", [("train", 0), ("test", 1)])
def test_impossible_requests_are_refused(bad):
    with pytest.raises(ConfigError):
        load_task("demo").problems(*bad)


def test_a_task_checks_its_sizes():
    with pytest.raises(ConfigError, match="segment_tokens"):
        dataclasses.replace(load_task("demo"), segment_tokens=0)
    with pytest.raises(ConfigError, match="allowance_tokens"):
        dataclasses.replace(load_task("demo"), allowance_tokens=1)
