"""Family (j): evaluation solves, and neither trains nor changes how training samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.slime.host.arguments import slime_args
from tests.slime.host.rollout import evaluate_dataset
from tests.slime.walks import Walks, hook_module

from focus import (
    Agent,
    Allowance,
    Collector,
    Execution,
    ExecutionServices,
    Grpo,
    Phase,
    Sampling,
    Search,
    Segments,
)
from focus.errors import EnvError
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_evaluate, make_generate
from focus.search import RootOnly
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy

from .servers import PROBLEM, Engine, served, written

ROWS = [{"problem": f"Walk {index}.", "solution": "x"} for index in range(3)]

pytestmark = pytest.mark.anyio


class Raising(WalkEnv):
    async def step(self, *args: Any) -> Any:
        raise RuntimeError("broken")


@pytest.mark.parametrize("concurrent", [False, True])
async def test_b79_training_samples_as_before_whatever_evaluation_asks(concurrent: bool) -> None:
    """Every training payload has T = 0.7, every evaluation payload T = 0; nothing is shared."""
    engine = Engine(written("+-+-+-"))
    services = ExecutionServices()

    async with served(engine, train_temperature=0.7) as policy:

        def collector(env: WalkEnv, sampling: Sampling | None = None) -> Collector:
            agent = Agent(
                policy,
                parser=Segments(3),
                sampling=sampling,
                allowance=Allowance(tokens=32),
                execution=Execution(services=services),
            )
            return Collector(agent=agent, env=env, search=Search.flat(3), own=False)

        async def train() -> None:
            async with collector(WalkEnv()) as training:
                await training.collect(PROBLEM)

        async def solve(env: WalkEnv) -> None:
            async with collector(env, Sampling(temperature=0.0)) as solving:
                await solving.evaluate(PROBLEM)

        async def broken() -> None:
            with pytest.raises(EnvError):
                await solve(Raising())

        jobs = [train, lambda: solve(WalkEnv()), broken, train, lambda: solve(WalkEnv()), train]
        async with anyio.create_task_group() as group:
            for job in jobs:
                if concurrent:
                    group.start_soon(job)
                else:
                    await job()
    told = [
        (p["rid"].partition("~")[0], p["sampling_params"]["temperature"]) for p in engine.payloads
    ]
    assert {t for name, t in told if "/eval/" not in name} == {0.7}
    assert {t for name, t in told if "/eval/" in name} == {0.0}


async def test_b79_what_one_phase_overrides_ends_with_it() -> None:
    """Settings are values: no phase, tree or evaluation leaves a trace in the agent it used."""
    asked: dict[int, set[tuple[int | None, tuple[int, ...] | None]]] = {}

    class Noting(ScriptedPolicy):
        async def generate(self, prefix: Any, sampling: Sampling, *, tag: Any = None) -> Any:
            expansion = int(tag.request.split("/")[-3])
            asked.setdefault(expansion, set()).add((sampling.max_tokens, sampling.stop))
            return await super().generate(prefix, sampling, tag=tag)

    agent = Agent(Noting(walk_script(8)), parser=Segments(3), allowance=Allowance(tokens=30))
    before = agent.sampling
    phases = [
        Phase(RootOnly(), attempts=2, sampling=Sampling(max_tokens=2, stop=(7,), seed=3)),
        Phase(RootOnly(), attempts=2),
    ]
    for _ in range(2):
        asked.clear()
        search = Search(phases, concurrency=1)
        async with Collector(agent=agent, env=WalkEnv(), search=search, credit=Grpo()) as growing:
            await growing.collect(PROBLEM)
        assert asked == {0: {(2, (7,))}, 1: {(2, (7,))}, 2: {(3, None)}, 3: {(3, None)}}
        assert agent.sampling == before


@pytest.mark.usefixtures("slime")
@pytest.mark.parametrize("copies", [1, 2])
async def test_b80_evaluation_gives_one_sample_with_an_outcome_and_no_records(
    copies: int, tmp_path: Path
) -> None:
    """Through the host's own loop, by either hook: 0 or 1 per copy, never an advantage."""
    walks, sink = Walks(), JsonlDirectory(tmp_path / "targets")
    hooks = {
        "evaluate": make_evaluate(walks, profile="token_chunk"),
        "generate": make_generate(walks, profile="token_chunk", critic_sink=sink),
    }
    with hook_module(**hooks) as module:
        args = slime_args(custom_generate_function_path=f"{module}.generate")
        for path in (f"{module}.evaluate", None):
            found = await evaluate_dataset(args, ROWS, path=path, copies=copies)
            assert len(found["samples"]) == len(ROWS) * copies
            assert set(found["rewards"]) <= {0.0, 1.0}
    assert not sink.path.exists()


class Greedy(ScriptedPolicy):
    """Writes what the prompt asks for, always the same."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, so_far, rng: ("+-++-" * 4)[len(so_far) : 11])


@pytest.mark.parametrize("allowance", [4, 11, 12, 40])
async def test_b82_a_tree_without_branches_is_the_solution_of_evaluation(allowance: int) -> None:
    """Same ids, same outcome, same ending; truncated ones included."""

    def collector() -> Collector:
        agent = Agent(Greedy(), parser=Segments(4), allowance=Allowance(tokens=allowance))
        return Collector(agent=agent, env=WalkEnv(), search=Search.flat(1), credit=Grpo())

    async with collector() as solving:
        solved = await solving.evaluate(PROBLEM)
    async with collector() as growing:
        grown = await growing.collect(PROBLEM)
    (leaf,) = grown.tree.terminals()
    assert grown.tree.context(leaf) == solved.prefix + solved.ids
    assert grown.root_outcomes == [solved.outcome]
    assert grown.tree[leaf].is_truncated is solved.truncated


@pytest.mark.usefixtures("slime")
async def test_b82_the_mean_over_copies_has_every_copy_in_its_denominator() -> None:
    """Solutions that ran out of allowance count as what they are worth, and are not dropped."""
    policies = Walks(policy=lambda: ScriptedPolicy(walk_script(12)), allowance=9)
    with hook_module(evaluate=make_evaluate(policies, profile="token_chunk")) as module:
        found = await evaluate_dataset(slime_args(), ROWS, path=f"{module}.evaluate", copies=5)
    assert len(found["rewards"]) == 15
    assert all(found["truncated"])
    by_prompt: Mapping[str, list[float]] = {}
    for sample in found["samples"]:
        by_prompt.setdefault(sample.prompt, []).append(sample.reward)
    assert {len(rewards) for rewards in by_prompt.values()} == {5}
