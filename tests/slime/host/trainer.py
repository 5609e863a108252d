"""Slime's trainer on toy models: hooks, loss, scaling; every rank in turn in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .parallel import Layout, Rank, cut_log_probs, held_positions, on_rank
from .rollout import load_function

__all__ = ("Step", "load_role", "train_actor", "train_critic")

Model = Callable[[torch.Tensor], torch.Tensor]
"""Token ids [T] to logits [T, V], or to values [T, 1]."""

_NOT_LOGGED = frozenset(
    {
        "tokens",
        "loss_masks",
        "sample_indices",
        "rollout_ids",
        "rollout_mask_sums",
        "global_batch_sizes",
        "num_microbatches",
        "micro_batch_indices",
        "source_names",
        "local_raw_reward",
    }
)


@dataclass(frozen=True)
class Step:
    """One optimizer step's gradient, as the optimizer sees it, and the logged loss."""

    loss: float
    gradients: dict[str, torch.Tensor]


def load_role(args: Any, roles: Sequence[Mapping[str, Any]], role: str) -> Any:
    """A role's own arguments: overrides, then the critic's resets, then its init hook."""
    made = copy.deepcopy(args)
    entries = [entry for entry in roles if entry["role"] == role]
    assert len(entries) <= 1
    for key, value in (entries[0].get("overrides", {}) if entries else {}).items():
        setattr(made, key, value)
    if role == "critic":
        made.custom_advantage_function_path = None
    if made.custom_megatron_init_path is not None:
        load_function(made.custom_megatron_init_path)(made)
    return made


def train_actor(
    args: Any, model: torch.nn.Module, parcels: list[dict[str, Any]], layout: Layout
) -> list[Step]:
    """The round's optimizer steps; the caller applies them (the model is not changed)."""
    return _steps(args, model, parcels, layout, prepare=_prepare_actor, loss=_policy_loss)


def train_critic(
    args: Any, model: torch.nn.Module, parcels: list[dict[str, Any]], layout: Layout
) -> list[Step]:
    """As `train_actor`, for the value loss."""
    return _steps(args, model, parcels, layout, prepare=_prepare_critic, loss=_value_loss)


def _steps(
    args: Any,
    model: torch.nn.Module,
    parcels: list[dict[str, Any]],
    layout: Layout,
    *,
    prepare: Callable[..., None],
    loss: Callable[..., torch.Tensor],
) -> list[Step]:
    assert len(parcels) == layout.dp
    processes = [
        (Rank(cp_rank, layout.cp), copy.deepcopy(parcel))
        for parcel in parcels
        for cp_rank in range(layout.cp)
    ]
    for rank, data in processes:
        with on_rank(rank):
            _receive(data)
            prepare(args, model, data)
            _check_advantages(data)
            _log_rollout_data(data)
    batch_sizes, counts = parcels[0]["global_batch_sizes"], parcels[0]["num_microbatches"]
    steps, first = [], 0
    for size, count in zip(batch_sizes, counts, strict=True):
        model.zero_grad()
        total = 0.0
        for rank, data in processes:
            with on_rank(rank):
                for positions in data["micro_batch_indices"][first : first + count]:
                    reduced = loss(args, model, _batch(data, positions))
                    assert reduced.dim() == 0
                    assert reduced.requires_grad, "no gradient flows"
                    # Slime's factors, then Megatron's division by the micro-batches.
                    scaled = reduced * count / size * (layout.dp * layout.cp)
                    (scaled / count).backward()
                    total += float(reduced.detach()) / size
        first += count
        ranks = layout.dp * layout.cp
        gradients = {
            name: parameter.grad / ranks  # the average over all ranks
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        steps.append(Step(total, gradients))
    return steps


def _receive(data: dict[str, Any]) -> None:
    for key in ("rollout_log_probs", "teacher_log_probs"):
        if key in data:
            data[key] = [
                cut_log_probs(values, total, response)
                for values, total, response in zip(
                    data[key], data["total_lengths"], data["response_lengths"], strict=True
                )
            ]


def _prepare_actor(args: Any, model: torch.nn.Module, data: dict[str, Any]) -> None:
    # A missing list of log-probs is a TypeError here, before any hook is asked.
    data["kl"] = [torch.zeros_like(x, dtype=torch.float32) for x in data["rollout_log_probs"]]
    load_function(args.custom_advantage_function_path)(args, data)
    assert not args.use_opd, "the weights would be changed"
    assert not args.normalize_advantages, "the weights would be changed"


def _prepare_critic(args: Any, model: torch.nn.Module, data: dict[str, Any]) -> None:
    with torch.no_grad():
        data["values"] = [
            model(tokens).squeeze(-1)[_before(total, response)]
            for tokens, total, response in _samples(data)
        ]
    data["kl"] = [torch.zeros_like(x, dtype=torch.float32) for x in data["rollout_log_probs"]]
    load_function(args.custom_advantage_function_path)(args, data)
    assert [len(mask) for mask in data["loss_masks"]] == data["response_lengths"]
    assert data["rollout_mask_sums"].shape == (len(data["tokens"]),)


def _check_advantages(data: dict[str, Any]) -> None:
    for key in ("advantages", "returns"):
        assert isinstance(data[key], list)
        for values, like in zip(data[key], data["kl"], strict=True):
            assert values.shape == like.shape
            assert values.device == like.device
            assert torch.isfinite(values).all()
    assert all(values.dtype is torch.float32 for values in data["advantages"])


def _log_rollout_data(data: dict[str, Any]) -> None:
    """Slime sums what it finds; something else than numbers and tensors ends the run."""
    for key, value in data.items():
        if key in _NOT_LOGGED:
            continue
        if isinstance(value, list | tuple):
            if isinstance(value[0], torch.Tensor):
                torch.cat(list(value)).sum()
            else:
                sum(value)
        elif not isinstance(value, torch.Tensor):
            raise ValueError(f"unsupported type {type(value)} for key {key}")


def _samples(data: Mapping[str, Any]) -> Any:
    return zip(data["tokens"], data["total_lengths"], data["response_lengths"], strict=True)


def _before(total: int, response: int) -> list[int]:
    """Positions of this rank whose output predicts a response token."""
    return [total - response - 1 + held for held in held_positions(total, response)]


def _batch(data: Mapping[str, Any], positions: list[int]) -> dict[str, Any]:
    keys = (
        "tokens",
        "loss_masks",
        "total_lengths",
        "response_lengths",
        "rollout_log_probs",
        "advantages",
        "returns",
        "values",
    )
    batch = {key: [data[key][i] for i in positions] for key in keys if key in data}
    batch["rollout_mask_sums"] = [data["rollout_mask_sums"][i] for i in positions]
    return batch


def _policy_loss(args: Any, model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    """PPO's clipped loss against the recorded log-probs, then the reducer hook."""
    now = []
    for tokens, total, response in _samples(batch):
        logits = model(tokens)[_before(total, response)] / args.rollout_temperature
        chosen = tokens[[position + 1 for position in _before(total, response)]]
        now.append(torch.log_softmax(logits, -1).gather(-1, chosen[:, None])[:, 0])
    log_probs = torch.cat(now)
    ratio = torch.exp(log_probs - torch.cat(batch["rollout_log_probs"]))
    weight = torch.cat(batch["advantages"])
    clipped = ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip_high)
    losses = torch.maximum(-ratio * weight, -clipped * weight)
    factory = load_function(args.custom_pg_loss_reducer_function_path)
    reduce = factory(
        batch["total_lengths"],
        batch["response_lengths"],
        batch["loss_masks"],
        args.calculate_per_token_loss,
    )
    assert losses.dim() == 1
    return reduce(losses)


def _value_loss(args: Any, model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    """Clipped squared error, averaged over each prompt's masked-in tokens."""
    total_loss = model(batch["tokens"][0]).sum() * 0
    rows = zip(
        _samples(batch),
        batch["values"],
        batch["returns"],
        batch["loss_masks"],
        batch["rollout_mask_sums"],
        strict=True,
    )
    for (tokens, total, response), old, target, mask, count in rows:
        value = model(tokens).squeeze(-1)[_before(total, response)]
        near = old + (value - old).clamp(-args.value_clip, args.value_clip)
        losses = torch.maximum((near - target) ** 2, (value - target) ** 2)
        here = cut_log_probs(mask, total, response)
        total_loss = total_loss + (losses * here).sum() / count.clamp_min(1)
    return total_loss
