"""The critic inside Slime: every target reaches the value of its own checkpoint, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from focus import DirectBranchTd
from focus.credit import Credit, Grpo
from focus.errors import ConfigError
from focus.integrations import JsonlDirectory
from focus.integrations.slime import critic_targets, make_generate, preserve_advantages
from focus.records import CriticRecord, read_critic_records
from focus.search import Search

from .forest import ToyModel, ToyValues
from .host.arguments import slime_args
from .host.convert import shipped, train_data
from .host.parallel import Layout
from .host.sample import Sample
from .host.trainer import load_role, train_actor, train_critic
from .walks import Walks, prompt

pytestmark = pytest.mark.anyio

ROLES = Path(__file__).parents[2] / "examples" / "math" / "roles.yaml"
LAYOUTS = [Layout(1, 1), Layout(2, 1), Layout(1, 2), Layout(2, 2)]
PROMPTS = 3


def critic_args(**changes: Any) -> Any:
    return slime_args(
        advantage_estimator="ppo",
        megatron_config_path=str(ROLES),
        rollout_batch_size=PROMPTS,
        over_sampling_batch_size=PROMPTS,
        global_batch_size=PROMPTS,
        **changes,
    )


class Thinned:
    """Trains half of the edges, so that some checkpoints have no trained child."""

    prior_strength = None

    def estimate(self, tree: Any, *, allow_partial: bool = False) -> Credit:
        found = DirectBranchTd().estimate(tree, allow_partial=allow_partial)
        kept = {node: w for node, w in found.advantages.items() if node % 4 == 0}
        return Credit(estimator="thinned", advantages=kept, targets=found.targets)


async def collected(folder: Path, credit: Any) -> tuple[list[Sample], list[CriticRecord]]:
    sink = JsonlDirectory(folder / "targets")
    hook = make_generate(
        Walks(credit=credit, search=Search.two_phase(tokens=80)),
        profile="token_chunk",
        critic_sink=sink,
        critic="slime",
    )
    made: list[Sample] = []
    for index in range(PROMPTS):
        made += await hook(critic_args(), prompt(index), {})
    return made, list(read_critic_records(sink.path))


def expected(
    model: ToyValues, records: list[CriticRecord]
) -> tuple[float, dict[str, torch.Tensor]]:
    """(1/prompts) Σ prompts mean over targets (V(context) − target)², from the records alone."""
    model.zero_grad()
    loss = torch.zeros((), dtype=torch.float64)
    for index in range(PROMPTS):
        own = [record for record in records if record.source.problem == index]
        for record in own:
            assert record.context.ids is not None
            value = model(torch.tensor(record.context.ids))[-1, 0]
            loss = loss + (value - record.target) ** 2 / len(own) / PROMPTS
    loss.backward()
    named = model.named_parameters()
    return float(loss.detach()), {n: p.grad.clone() for n, p in named if p.grad is not None}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"dp{layout.dp}-cp{layout.cp}")
@pytest.mark.parametrize("credit", [None, Thinned()], ids=["every edge", "half of the edges"])
async def test_loss_and_gradient_equal_an_independent_computation(
    layout: Layout, credit: Any, tmp_path: Path
) -> None:
    made, records = await collected(tmp_path, credit)
    args = load_role(critic_args(), yaml.safe_load(ROLES.read_text())["megatron"], "critic")
    assert args.custom_advantage_function_path == "focus.integrations.slime.critic_targets"
    model = ToyValues(vocabulary=257)
    loss, gradients = expected(model, records)
    parcels, _ = shipped(args, train_data(args, made), layout)
    (step,) = train_critic(args, model, parcels, layout)
    assert step.loss == pytest.approx(loss, rel=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(step.gradients[name], gradient, atol=1e-6, rtol=1e-6)


async def test_the_actor_trains_as_without_a_critic(tmp_path: Path) -> None:
    made, _ = await collected(tmp_path, None)
    plain = make_generate(
        Walks(search=Search.two_phase(tokens=80)), profile="token_chunk", packing="segment"
    )
    alone: list[Sample] = []
    usual = slime_args(rollout_batch_size=3, over_sampling_batch_size=3, global_batch_size=3)
    for index in range(PROMPTS):
        alone += await plain(usual, prompt(index), {})
    actor = load_role(critic_args(), yaml.safe_load(ROLES.read_text())["megatron"], "actor")
    gradients = []
    for args, samples in ((actor, made), (usual, alone)):
        parcels, _ = shipped(args, train_data(args, samples), Layout())
        (step,) = train_actor(args, ToyModel(vocabulary=257), parcels, Layout())
        gradients.append(step.gradients)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name])


async def test_each_target_travels_once_and_success_apart(tmp_path: Path) -> None:
    made, records = await collected(tmp_path, Thinned())
    targets, weights = preserve_advantages(critic_args(), made)
    assert sorted(t for t in targets if t != -1) == pytest.approx(
        sorted(record.target for record in records)
    )
    assert weights == [sample.reward for sample in made]
    assert not any("raw_reward" in sample.metadata for sample in made)
    for index in range(PROMPTS):
        own = [sample for sample in made if sample.index == index]
        count = sum(record.source.problem == index for record in records)
        assert {sample.metadata["round_number"] for sample in own} == {count}
        assert len({sample.metadata["focus_success"] for sample in own}) == 1
        assert {sample.rollout_id for sample in own} == {index}
    masked = [sample for sample in made if not any(sample.loss_mask or [])]
    assert masked
    assert all((s.response_length, s.reward, s.response) == (1, 0.0, "") for s in masked)


async def test_an_estimator_without_targets_is_refused() -> None:
    hook = make_generate(
        Walks(credit=Grpo(), search=Search.flat(4)), profile="token_chunk", critic="slime"
    )
    with pytest.raises(ConfigError, match=r"problem 0: .*gives no critic targets"):
        await hook(critic_args(), prompt(0), {})


def test_samples_without_targets_are_named_by_the_critic() -> None:
    with pytest.raises(ConfigError, match="make_generate"):
        critic_targets(slime_args(), {"loss_masks": []})
