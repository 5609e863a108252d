"""Hooks of Slime's reward post-processing and trainer: FOCUS's weights, FOCUS's sum.

Slime divides the reduced loss by the number of prompts of the step exactly once, and
averages nothing else: its factors for micro-batches, data and context parallelism cancel
(docs/tutorials/slime.md, "How the loss is scaled"). So a reducer that returns the masked
sum gives

    loss = (1 / prompts) · Σ over trained tokens of the clipped surrogate,

FOCUS's objective, however samples are spread over micro-batches and devices.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from focus._extras import require
from focus.errors import ConfigError, RecordError
from focus.integrations.slime._channels import (
    BEHAVIOUR,
    NODES,
    PROMPT,
    SUCCESS,
    TARGET,
    TOKEN_WEIGHTS,
    WEIGHT,
)
from focus.integrations.slime._refusals import check_args

__all__ = ("advantages", "local_part", "preserve_advantages", "sum_policy_tokens")

Reducer = Callable[[Any], Any]

_CUTS = "slime.backends.megatron_utils.cp_utils"


def preserve_advantages(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Reward post-processing that leaves the prepared weights alone.

    Args:
        args: Slime's.
        samples: the round's samples, flat, as `make_generate` made them.

    Returns:
        What Slime logs as raw reward (collection success, or the critic's targets where
        the samples bring them) and the weights; both in sample order.

    Raises:
        ConfigError: a flag of Slime would change the weights later.
        RecordError: a weight is no finite number, or the prompts of the round cannot be
            told apart by their rollout_id.

    >>> from types import SimpleNamespace as Sample
    >>> preserve_advantages(Sample(), [Sample(reward=0.25), Sample(reward=-0.5)])[1]
    [0.25, -0.5]
    """
    check_args(args)
    _check_identities(samples)
    weights = [_number(sample, WEIGHT.get(sample), "weight") for sample in samples]
    shown = TARGET if any(TARGET.get(sample) is not None for sample in samples) else SUCCESS
    logged = [shown.get(sample) for sample in samples]
    if shown is TARGET:
        return [
            _number(s, t, "critic target") for s, t in zip(samples, logged, strict=True)
        ], weights
    return [w if s is None else s for s, w in zip(logged, weights, strict=True)], weights


def advantages(args: Any, rollout_data: dict[str, Any]) -> None:
    """Advantage hook: each sample's weight over its response positions.

    Sets ``advantages`` and ``returns``, lists of float32 tensors shaped and placed like the
    recorded log-probs, which Slime has already cut for context parallelism. Weights per
    token (packing "path") are taken where samples bring them, and are then removed so that
    they are not logged as a teacher's log-probs.

    Raises:
        ConfigError: a flag of Slime would change the weights, or the recorded log-probs
            are missing.
        RecordError: log-probs and weights do not align.
    """
    check_args(args)
    recorded = BEHAVIOUR.arrived(rollout_data)
    if recorded is None:
        raise ConfigError("--use-rollout-logprobs: the samples bring no recorded log-probs")
    torch = require("torch", extra="local")
    per_token = TOKEN_WEIGHTS.arrived(rollout_data)
    weights = WEIGHT.arrived(rollout_data) if per_token is None else per_token
    made = []
    for index, (log_probs, weight) in enumerate(zip(recorded, weights, strict=True)):
        values = torch.zeros_like(log_probs, dtype=torch.float32) + weight
        if values.shape != log_probs.shape:
            raise RecordError(
                f"sample {index}: {tuple(values.shape)} weights for {tuple(log_probs.shape)} "
                "recorded log-probs"
            )
        made.append(values)
    rollout_data.pop(TOKEN_WEIGHTS.key, None)
    rollout_data["advantages"] = made
    rollout_data["returns"] = [values.clone() for values in made]


def sum_policy_tokens(
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    loss_masks: Sequence[Any],
    calculate_per_token_loss: bool,
) -> Reducer:
    """Loss reducer: the masked sum over the tokens that this rank holds.

    Args:
        total_lengths, response_lengths: tokens of each sample of the micro-batch.
        loss_masks: one mask per sample over its whole response; cut here like Slime cuts
            log-probs when context parallelism spreads a sample over ranks.
        calculate_per_token_loss: Slime's flag; must be off.

    Returns:
        A function from the micro-batch's token losses, concatenated, to their sum.

    Raises:
        ConfigError: the flag is on.
        RecordError: from the reducer: losses and masks differ in number.
    """
    if calculate_per_token_loss:
        raise ConfigError(
            "--calculate-per-token-loss: divides the sum by the batch's tokens; leave it out"
        )
    torch = require("torch", extra="local")
    parts = [
        local_part(mask, total, response)
        for mask, total, response in zip(loss_masks, total_lengths, response_lengths, strict=True)
    ]

    def reduce(losses: Any) -> Any:
        mask = torch.cat(parts).to(losses.dtype)
        if mask.shape != losses.shape:
            raise RecordError(f"{losses.numel()} token losses for {mask.numel()} mask entries")
        return (losses * mask).sum()

    return reduce


def local_part(values: Any, total_length: int, response_length: int) -> Any:
    """The entries of a response-aligned tensor that this context-parallel rank holds.

    Slime's own cut where its trainer is loaded; everything where it is not.
    """
    cuts = sys.modules.get(_CUTS)
    if cuts is None:
        return values
    return cuts.slice_log_prob_with_cp(values, total_length, response_length)


def _check_identities(samples: Sequence[Any]) -> None:
    """One rollout_id per prompt, one prompt per rollout_id, one tree per prompt.

    Slime would give samples without one an id each, and merge prompts that share one.
    """
    prompts: dict[Any, Any] = {}
    trained: set[tuple[Any, Any]] = set()
    for sample in samples:
        index, identity = getattr(sample, "index", None), PROMPT.get(sample)
        if index is None and identity is None:
            continue
        if identity is None or prompts.setdefault(identity, index) != index:
            others = "missing" if identity is None else f"also that of prompt {prompts[identity]}"
            raise RecordError(f"prompt {index}: rollout_id {identity} is {others}")
        edges = [(identity, node) for node in NODES.get(sample) or ()]
        if not trained.isdisjoint(edges):
            raise RecordError(f"prompt {index}: two trees in one batch")
        trained.update(edges)
    if len(set(prompts.values())) != len(prompts):
        raise RecordError(f"{len(prompts)} rollout_ids for {len(set(prompts.values()))} prompts")


def _number(sample: Any, value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RecordError(f"prompt {getattr(sample, 'index', None)}: {what} is {value!r}")
    return float(value)
