"""Datums: what Tinker's losses read.

Row i of every tensor belongs to predicting the id after input id i, so inputs are all ids
but the last and targets all but the first. What is not trained has weight 0; there is no
mask. Tinker sums over everything, so the mean over prompts is divided out here: with A the
advantages and P the prompts of the step, A / P makes loss and gradient exactly 1 / P of the
sum for all losses that are linear in A.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from focus._extras import require
from focus.integrations.tinker.packing import PathRow
from focus.integrations.tinker.settings import LossName
from focus.tokens import TokenIds
from focus.training.settings import ActorSettings

__all__ = ("actor_datum", "loss_config", "verdict_datum", "verdict_targets")


def actor_datum(row: PathRow, *, prompts: int) -> Any:
    """A ``tinker.Datum`` for a policy loss.

    Args:
        row: at least two tokens.
        prompts: P, of the whole optimizer step.
    """
    tinker = require("tinker", extra="tinker")
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(row.tokens[:-1])),
        loss_fn_inputs={
            "target_tokens": _tensor(row.tokens[1:], "int64"),
            "logprobs": _tensor(row.log_probs[1:], "float32"),
            "advantages": _tensor([weight / prompts for weight in row.weights[1:]], "float32"),
        },
    )


def loss_config(loss: LossName, actor: ActorSettings) -> dict[str, float] | None:
    """Settings of a policy loss: absolute ratios, where FOCUS has distances from 1.

    >>> loss_config("ppo", ActorSettings(clip_low=0.2, clip_high=0.3))
    {'clip_low_threshold': 0.8, 'clip_high_threshold': 1.3}
    """
    if loss == "importance_sampling":
        return None
    return {
        "clip_low_threshold": 1.0 - actor.clip_low,
        "clip_high_threshold": 1.0 + actor.clip_high,
    }


def verdict_datum(ids: TokenIds, answers: tuple[int, int], *, target: float, weight: float) -> Any:
    """A ``tinker.Datum`` for ``cross_entropy`` with a soft target on two answers.

    The last input id is where the verdict is read, so nothing is shifted. With p the model's
    probability of each answer, its loss is −weight · (G log p_yes + (1 − G) log p_no).

    Args:
        ids: checkpoint and verdict suffix.
        answers: ids of yes and no.
        target: G in [0, 1].
        weight: share of this checkpoint in its step.
    """
    tinker = require("tinker", extra="tinker")
    padding = [0, 0] * (len(ids) - 1)
    shape = [len(ids), 2]
    shares = [weight * target, weight * (1.0 - target)]
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(ids)),
        loss_fn_inputs={
            "target_tokens": _tensor([*padding, *answers], "int64", shape),
            "weights": _tensor([*padding, *shares], "float32", shape),
        },
    )


def verdict_targets(prompt_tokens: int, answers: tuple[int, int]) -> Any:
    """Which ids to score, and where: both answers, at the prompt's last place."""
    padding = [-1, -1] * (prompt_tokens - 2)
    return _tensor([*padding, *answers], "int64", [prompt_tokens - 1, 2])


def _tensor(values: Sequence[float], dtype: str, shape: list[int] | None = None) -> Any:
    tinker = require("tinker", extra="tinker")
    return tinker.TensorData(data=list(values), dtype=dtype, shape=shape or [len(values)])
