"""Weights through Slime's post-processing and trainer."""

from __future__ import annotations

import inspect
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from focus.errors import ConfigError, RecordError
from focus.integrations.slime import advantages, preserve_advantages, sum_policy_tokens

from .forest import ToyModel, grow, samples
from .host.arguments import slime_args
from .host.convert import shipped, train_data
from .host.parallel import Layout, Rank, held_positions, on_rank
from .host.sample import Sample


def batch(*trees: list[float], **fields: Any) -> list[Sample]:
    return [
        Sample(index=index, rollout_id=index, reward=weight, **fields)
        for index, weights in enumerate(trees)
        for weight in weights
    ]


def test_unequal_trees_keep_their_weights() -> None:
    weights = [[0.3, -0.1, 0.7, 0.25], [0.0, 0.0, 0.0], [5.0, -5.0, 1e-9, 2.0]]
    flat = [weight for tree in weights for weight in tree]
    raw, rewards = preserve_advantages(slime_args(), batch(*weights))
    assert rewards == flat
    assert raw == flat


def test_success_is_what_slime_logs() -> None:
    made = batch([0.5, -0.5], metadata={"raw_reward": 0.75})
    assert preserve_advantages(slime_args(), made) == ([0.75, 0.75], [0.5, -0.5])


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf"), True, "1", {"a": 1}])
def test_a_weight_that_is_no_number_is_named(reward: Any) -> None:
    with pytest.raises(RecordError, match="prompt 1: weight"):
        preserve_advantages(slime_args(), batch([1.0], [reward]))


def test_two_prompts_with_one_rollout_id_are_refused() -> None:
    made = batch([1.0], [2.0])
    made[1].rollout_id = 0
    with pytest.raises(RecordError, match="rollout_id 0"):
        preserve_advantages(slime_args(), made)


def test_a_prompt_with_two_rollout_ids_is_refused() -> None:
    made = batch([1.0, 2.0])
    made[1].rollout_id = 7
    with pytest.raises(RecordError, match="2 rollout_ids for 1 prompts"):
        preserve_advantages(slime_args(), made)


def test_a_missing_rollout_id_is_refused() -> None:
    made = batch([1.0], [2.0])
    made[1].rollout_id = None
    with pytest.raises(RecordError, match="prompt 1: rollout_id None is missing"):
        preserve_advantages(slime_args(), made)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_weight_covers_its_response(dtype: torch.dtype) -> None:
    recorded = [torch.zeros(3, dtype=dtype), torch.zeros(0, dtype=dtype), torch.zeros(2)]
    data = {"rollout_log_probs": recorded, "rewards": [0.1, 0.2, -0.3]}
    advantages(slime_args(), data)
    assert [values.tolist() for values in data["advantages"]] == [
        pytest.approx([0.1] * 3),
        [],
        pytest.approx([-0.3] * 2),
    ]
    assert all(values.dtype is torch.float32 for values in data["advantages"])
    for value, copy in zip(data["advantages"], data["returns"], strict=True):
        assert torch.equal(value, copy)
        assert value is not copy


def test_missing_log_probs_are_named() -> None:
    with pytest.raises(ConfigError, match="--use-rollout-logprobs"):
        advantages(slime_args(), {"rewards": [1.0]})


def test_weights_per_token_are_used_and_not_logged() -> None:
    data = {
        "rollout_log_probs": [torch.zeros(3)],
        "rewards": [9.0],
        "teacher_log_probs": [torch.tensor([1.0, 0.0, -2.0])],
    }
    advantages(slime_args(), data)
    assert data["advantages"][0].tolist() == [1.0, 0.0, -2.0]
    assert "teacher_log_probs" not in data


def test_weights_per_token_must_align() -> None:
    data = {
        "rollout_log_probs": [torch.zeros(3)],
        "rewards": [9.0],
        "teacher_log_probs": [torch.zeros(2)],
    }
    with pytest.raises((RecordError, RuntimeError)):
        advantages(slime_args(), data)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_together_sum_every_masked_token_once(size: int) -> None:
    rng = random.Random(size)
    lengths = [(rng.randint(n + 1, 3 * n + 2), n) for n in (1, 2, 5, 9, 17)]
    masks = [torch.tensor([rng.randint(0, 1) for _ in range(n)]) for _, n in lengths]
    losses = [torch.rand(n, dtype=torch.float64) for _, n in lengths]
    total = 0.0
    for rank in range(size):
        with on_rank(Rank(rank, size)):
            held = [
                part[held_positions(whole, n)]
                for part, (whole, n) in zip(losses, lengths, strict=True)
            ]
            reduce = sum_policy_tokens(
                [whole for whole, _ in lengths], [n for _, n in lengths], masks, False
            )
            total += float(reduce(torch.cat(held)))
    exact = sum(float((a * b).sum()) for a, b in zip(losses, masks, strict=True))
    assert total == pytest.approx(exact, abs=1e-12)


def test_a_reducer_without_the_hosts_cut_is_an_error() -> None:
    """Losses of one rank against masks of the whole response never pass for a sum."""
    reduce = sum_policy_tokens([9], [6], [torch.ones(6)], False)
    with pytest.raises(RecordError, match="3 token losses for 6 mask entries"):
        reduce(torch.zeros(3))


def test_a_rank_without_tokens_gives_a_zero_that_has_a_gradient() -> None:
    with on_rank(Rank(0, 4)):
        reduce = sum_policy_tokens([80], [2], [torch.ones(2)], False)
        empty = torch.zeros(0, requires_grad=True)
        assert held_positions(80, 2) in ([], [0], [1], [0, 1])
        if not held_positions(80, 2):
            assert reduce(empty).requires_grad


@pytest.mark.parametrize("packing", ["segment", "path"])
def test_every_value_survives_slimes_whitelist(packing: Any) -> None:
    args = slime_args(rollout_batch_size=2, over_sampling_batch_size=2, global_batch_size=2)
    made = samples(grow(ToyModel(), 2, seed=3), packing)
    (parcel,), _ = shipped(args, train_data(args, made), Layout())
    order = parcel["partition"]
    assert parcel["rewards"] == [made[i].reward for i in order]
    assert parcel["rollout_ids"] == [made[i].rollout_id for i in order]
    for sent, i in zip(parcel["rollout_log_probs"], order, strict=True):
        assert torch.equal(sent, torch.tensor(made[i].rollout_log_probs))
    assert ("teacher_log_probs" in parcel) == (packing == "path")


@pytest.mark.parametrize(
    ("hook", "names"),
    [
        (preserve_advantages, ["args", "samples"]),
        (advantages, ["args", "rollout_data"]),
        (
            sum_policy_tokens,
            ["total_lengths", "response_lengths", "loss_masks", "calculate_per_token_loss"],
        ),
    ],
)
def test_parameters_have_the_names_that_slime_checks(hook: Any, names: list[str]) -> None:
    assert list(inspect.signature(hook).parameters) == names


def test_plain_objects_will_do() -> None:
    made = [SimpleNamespace(reward=0.5), SimpleNamespace(reward=-1)]
    assert preserve_advantages(SimpleNamespace(), made)[1] == [0.5, -1.0]
