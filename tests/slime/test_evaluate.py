"""The evaluation hook: one solution, its outcome, and nothing left behind."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus import Sampling, Search
from focus.credit import Grpo
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_evaluate, make_generate
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import RecordingPolicy, ScriptedPolicy

from .host.arguments import slime_args
from .host.rollout import evaluate_dataset
from .host.sample import Sample
from .walks import STEPS, Walks, hook_module, prompt

pytestmark = pytest.mark.anyio

ROWS = [{"problem": f"Walk {index}.", "solution": "secret"} for index in range(6)]
PARAMS: dict[str, Any] = {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 4096}


async def test_one_solution_with_its_last_generation() -> None:
    walks = Walks(policy=lambda: RecordingPolicy(ScriptedPolicy(walk_script(STEPS))))
    sample = await make_evaluate(walks, profile="token_chunk")(slime_args(), prompt(3), {})
    assert type(sample) is Sample
    assert sample.index == 3
    assert sample.reward in {0.0, 1.0}
    assert sample.status is Sample.Status.COMPLETED
    (policy,) = walks.policies
    assert len(policy.replies) == STEPS // 3 + 1
    *_, last = policy.replies.values()
    assert sample.tokens[-sample.response_length :] == last["ids"]
    assert len(sample.tokens) - sample.response_length == last["prefix_tokens"]
    assert sample.rollout_log_probs == last["log_probs"]
    assert sample.loss_mask == [1] * sample.response_length
    assert len(sample.response) == STEPS


async def test_the_reward_is_the_outcome_of_that_solution() -> None:
    hook = make_evaluate(Walks(), profile="token_chunk")
    for index in range(8):
        sample = await hook(slime_args(), prompt(index), PARAMS)
        height = sample.response.count("+") - sample.response.count("-")
        assert sample.reward == float(height > 0)


async def test_a_solution_out_of_allowance_counts_as_truncated() -> None:
    hook = make_evaluate(Walks(allowance=9), profile="token_chunk")
    assert (await hook(slime_args(), prompt(1), {})).status is Sample.Status.TRUNCATED


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("routed", ["evaluate", "generate"])
async def test_slimes_loop_gets_one_number_per_prompt_and_no_records(
    copies: int, routed: str, tmp_path: Path
) -> None:
    walks, sink = Walks(), JsonlDirectory(tmp_path / "targets")
    hooks = {
        "evaluate": make_evaluate(walks, profile="token_chunk"),
        "generate": make_generate(walks, profile="token_chunk", critic_sink=sink),
    }
    with hook_module(**hooks) as module:
        args = slime_args(custom_generate_function_path=f"{module}.generate")
        path = f"{module}.evaluate" if routed == "evaluate" else None
        found = await evaluate_dataset(args, ROWS, path=path, copies=copies, temperature=0.0)
    assert len(found["rewards"]) == len(ROWS) * copies
    assert set(found["rewards"]) <= {0.0, 1.0}
    assert [sample.index for sample in found["samples"]] == list(range(len(ROWS) * copies))
    assert all(policy.requests == STEPS // 3 + 1 for policy in walks.policies)
    assert not sink.path.exists()


async def test_copies_of_a_prompt_are_different_solutions() -> None:
    hook = make_evaluate(Walks(sampling=Sampling(seed=1)), profile="token_chunk")
    texts = {(await hook(slime_args(), prompt(0), {})).response for _ in range(8)}
    assert len(texts) > 1


class RaisesOnce(WalkEnv):
    async def step(self, *args: Any) -> Any:
        raise RuntimeError("broken")


async def test_training_keeps_its_settings_whatever_evaluation_is_asked() -> None:
    recorded: list[Sampling] = []

    class Noting(ScriptedPolicy):
        async def generate(self, prefix: Any, sampling: Sampling, **options: Any) -> Any:
            recorded.append(sampling)
            return await super().generate(prefix, sampling, **options)

    walks = Walks(policy=lambda: Noting(walk_script(STEPS)))
    generate = make_generate(walks, profile="token_chunk")
    evaluate = make_evaluate(walks, profile="token_chunk")
    broken = make_evaluate(Walks(env=RaisesOnce), profile="token_chunk")
    params = dict(PARAMS)
    alone = await make_generate(Walks(), profile="token_chunk")(slime_args(), prompt(1), {})
    await evaluate(slime_args(), prompt(0), params)
    with pytest.raises(Exception, match="broken"):
        await broken(slime_args(), prompt(0), params)
    made: list[Any] = []

    async def train() -> None:
        made.extend(await generate(slime_args(), prompt(1), dict(params)))

    async with anyio.create_task_group() as group:
        group.start_soon(train)
        for index in range(4):
            group.start_soon(evaluate, slime_args(), prompt(index), params)
    assert made == alone
    assert {sampling.law for sampling in recorded} == {(1.0, 1.0, None)}
    assert params == PARAMS


async def test_settings_that_are_not_used_are_mentioned_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = make_evaluate(Walks(), profile="token_chunk")
    with caplog.at_level(logging.WARNING, logger="focus.integrations.slime"):
        for index in range(3):
            await hook(slime_args(), prompt(index), PARAMS)
        await hook(slime_args(), prompt(3), {"temperature": 1.0, "top_p": None})
    assert [record.message for record in caplog.records] == [
        "evaluation samples as the agent does; {'temperature': 0.0} is not used"
    ]


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4])
async def test_cancelling_an_evaluation_leaves_nothing(turns: int) -> None:
    before = asyncio.all_tasks()
    hook = make_evaluate(Walks(), profile="token_chunk")
    task = asyncio.ensure_future(hook(slime_args(), prompt(0), {}))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_a_tree_of_one_rollout_has_the_solution_that_evaluation_finds() -> None:
    """Same ids, same outcome: training and evaluation differ in branching alone."""

    def greedy(prompt: str, so_far: str, rng: object) -> str:
        return ("+-" * STEPS)[len(so_far) : STEPS] + "+"

    walks = Walks(
        policy=lambda: ScriptedPolicy(greedy), search=Search.flat(1), credit=Grpo(), allowance=32
    )
    solved = await make_evaluate(walks, profile="token_chunk")(slime_args(), prompt(0), {})
    made = await make_generate(walks, profile="token_chunk", packing="path")(
        slime_args(), prompt(0), {}
    )
    assert [sample.tokens for sample in made] == [solved.tokens]
    assert made[0].metadata["raw_reward"] == solved.reward


async def test_the_mean_over_copies_counts_truncated_ones() -> None:
    with hook_module(evaluate=make_evaluate(Walks(allowance=9), profile="token_chunk")) as module:
        path = f"{module}.evaluate"
        found = await evaluate_dataset(slime_args(), ROWS[:2], path=path, copies=3)
    assert len(found["rewards"]) == 6
    assert all(found["truncated"])
