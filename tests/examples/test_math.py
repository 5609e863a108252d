"""The MATH recipe's own files, on the built-in model."""

from __future__ import annotations

import importlib
import inspect
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from focus import (
    AdmissionPool,
    Critic,
    DirectBranchTd,
    ExecutionServices,
    Problem,
    load_tree,
)
from focus.policies.base import Policy
from focus.testing.policies import ScriptedPolicy

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "math"
PROBLEM = Problem(id=1, prompt="Compute 2 + 3.", label=r"It is \boxed{5}.")


@pytest.fixture(scope="module")
def recipe() -> Any:
    """The two modules, imported as a trainer does: from their folder on the path."""
    names = ("math_quickstart", "math_training")
    sys.path.insert(0, str(FOLDER))
    try:
        yield tuple(importlib.import_module(name) for name in names)
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture
def quickstart(recipe: tuple[ModuleType, ModuleType]) -> ModuleType:
    return recipe[0]


@pytest.fixture
def training(recipe: tuple[ModuleType, ModuleType]) -> ModuleType:
    return recipe[1]


STEPS = 900


def solver(prompt: str, so_far: str, rng: random.Random) -> str:
    answer = "x" * STEPS + rf"\boxed{{{rng.choice('56')}}}"
    return answer[len(so_far) :]


def parameters(function: Any) -> list[str]:
    return [
        str(p.replace(annotation=p.empty)) for p in inspect.signature(function).parameters.values()
    ]


def test_the_surface_is_the_one_the_tutorial_names(
    quickstart: ModuleType, training: ModuleType
) -> None:
    assert quickstart.CHUNK_TOKENS == 256
    assert parameters(quickstart.parse_answer) == ["text"]
    assert parameters(quickstart.make_policy) == ["model"]
    assert parameters(quickstart.make_agent) == ["policy", "execution=None"]
    assert parameters(training.make_collector) == [
        "policy",
        "reference",
        "critic=None",
        "services=None",
    ]
    assert parameters(training.collector_for) == ["policy", "problem"]
    assert training.MathEnv is quickstart.MathEnv


@pytest.mark.parametrize(
    ("text", "answer"),
    [(r"so \boxed{\frac{1}{2}}.", [r"\frac{1}{2}"]), ("5", ["5"]), ("", []), ("1 and 2", [])],
)
def test_an_answer_is_parsed_or_there_is_none(
    quickstart: ModuleType, text: str, answer: list[str]
) -> None:
    assert quickstart.parse_answer(text) == answer


def test_the_agent_has_chunks_and_horizon_of_the_tutorial(quickstart: ModuleType) -> None:
    agent = quickstart.make_agent(ScriptedPolicy(solver, train_temperature=0.7))
    assert agent.parser.request_tokens == 256
    assert agent.allowance.tokens == 4096
    assert agent.sampling.law == (0.7, 1.0, None)


@pytest.mark.anyio
async def test_a_problem_gives_one_credited_tree(training: ModuleType) -> None:
    async with training.collector_for(ScriptedPolicy(solver), PROBLEM) as collector:
        found = await collector.collect(PROBLEM)
    assert found.ledger.tokens_generated <= 16_384
    assert {selection.phase for selection in found.tree.selections} == {0, 1}
    assert found.credit.estimator == DirectBranchTd().estimate(found.tree).estimator
    assert found.tree.header.critic_version == Critic.constant(0.5).version
    assert {record.source.problem for record in found.actor} == {1}
    assert set(found.root_outcomes) <= {0.0, 1.0}


@pytest.mark.anyio
async def test_evaluation_is_one_unbranched_solution(training: ModuleType) -> None:
    async with training.collector_for(ScriptedPolicy(solver), PROBLEM) as collector:
        solution = await collector.evaluate(PROBLEM)
    assert solution.outcome in (0.0, 1.0)
    assert solution.tokens == STEPS + len(r"\boxed{5}") + 1


@pytest.mark.anyio
async def test_shared_services_outlive_their_collectors(training: ModuleType) -> None:
    async with ExecutionServices(pool=AdmissionPool(capacity=8)) as services:
        for _ in range(2):
            collector = training.make_collector(ScriptedPolicy(solver), "5", services=services)
            async with collector:
                await collector.evaluate(PROBLEM)
        assert services.pool.statistics.in_use == 0


@pytest.mark.anyio
async def test_the_quickstart_runs_on_the_built_in_model(
    quickstart: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tree.json"
    options = quickstart.parse_options(["--tokens", "120", "--out", str(out)])
    assert (options.model, options.chunk) == ("builtin", 12)
    async with quickstart.make_policy(options.model) as policy:
        assert isinstance(policy, Policy)
    await quickstart.solve(options)
    assert f"focus show {out}" in capsys.readouterr().out
    assert len(load_tree(out)) > 2


def test_an_answer_that_nothing_can_match_is_wrong_usage(quickstart: ModuleType) -> None:
    with pytest.raises(SystemExit) as ended:
        quickstart.parse_options(["--answer", "1 and 2"])
    assert ended.value.code == 2
