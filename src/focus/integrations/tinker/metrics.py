"""What an update measured, under FOCUS's names and under those Tinker's users know."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from focus.integrations.tinker.packing import PathRow
from focus.integrations.tinker.verdict import verdict_value
from focus.records.files import write_whole
from focus.records.records import CriticRecord
from focus.training.settings import ActorSettings

__all__ = ("actor_metrics", "cookbook_metrics", "critic_metrics", "write_checkpoints")


def actor_metrics(
    rows: Sequence[PathRow],
    output: Any,
    actor: ActorSettings,
    *,
    rate: float,
    step: Any = None,
) -> dict[str, float]:
    """Figures of one policy update, over its trained tokens.

    `optim/kl_sample_train_v1` is mean(sampled − learner) of the log-probs, v2 is half their
    mean squared difference: what the first step of a healthy run has at about 0.

    Args:
        rows: as sent.
        output: of forward_backward; unused without rows.
        actor: thresholds, for the share of clipped tokens.
        rate: learning rate of the step.
        step: of optim_step; its metrics are passed on.
    """
    pairs = list(_trained(rows, output))
    tokens = len(pairs) or 1
    gaps = [sampled - learned for sampled, learned in pairs]
    low, high = 1.0 - actor.clip_low, 1.0 + actor.clip_high
    clipped = sum(1 for gap in gaps if not low <= math.exp(-gap) <= high)
    told = {} if step is None else dict(step.metrics or {})
    return {
        "actor_loss": float(output.metrics["loss:sum"]) if rows else 0.0,
        "actor_tokens": float(len(pairs)),
        "actor_billed_tokens": float(sum(len(row.tokens) - 1 for row in rows)),
        "actor_clip_share": clipped / tokens,
        "actor_behaviour_kl": sum(math.exp(-gap) - 1.0 + gap for gap in gaps) / tokens,
        "optim/kl_sample_train_v1": sum(gaps) / tokens,
        "optim/kl_sample_train_v2": sum(gap * gap for gap in gaps) / (2.0 * tokens),
        "optim/entropy": -sum(sampled for sampled, _ in pairs) / tokens,
        "optim/lr": rate,
        **{f"optim/{name}": float(value) for name, value in told.items()},
    }


def _trained(rows: Sequence[PathRow], output: Any) -> Iterator[tuple[float, float]]:
    """(sampled, learner's) log-prob of each trained token."""
    if not rows:
        return
    for row, found in zip(rows, output.loss_fn_outputs, strict=True):
        learned = found["logprobs"].data
        yield from ((row.log_probs[place], learned[place - 1]) for place in row.trained)


def critic_metrics(
    batches: Sequence[Sequence[CriticRecord]], outputs: Sequence[Any]
) -> dict[str, float]:
    """Mean squared error, before each step's update, and mass on the two answers."""
    errors, masses, losses = [], [], []
    for batch, output in zip(batches, outputs, strict=True):
        losses.append(float(output.metrics["loss:sum"]))
        for record, found in zip(batch, output.loss_fn_outputs, strict=True):
            log_yes, log_no = found["logprobs"].data[-2:]
            errors.append((verdict_value(log_yes, log_no) - record.target) ** 2)
            masses.append(math.exp(log_yes) + math.exp(log_no))
    count = len(errors) or 1
    return {
        "critic_loss": sum(errors) / count,
        "critic_cross_entropy": sum(losses) / (len(losses) or 1),
        "critic_answer_mass": sum(masses) / count,
    }


def cookbook_metrics(metrics: Mapping[str, Any], *, rounds: int) -> dict[str, Any]:
    """A round's figures under the names that the Tinker cookbook's tools plot.

    >>> row = {"round": 4, "collection_success": 0.5, "wall_s": 9.0, "collect_s": 6.0,
    ...        "update_s": 2.0, "judge_s": 1.0, "tokens_sampled": 100}
    >>> cookbook_metrics(row, rounds=10)["progress/done_frac"]
    0.5
    """
    return {
        "progress/batch": metrics["round"],
        "progress/done_frac": (metrics["round"] + 1) / rounds,
        "env/all/reward/total": metrics["collection_success"],
        "time/sampling": metrics["collect_s"],
        "time/train": metrics["update_s"],
        "time/evaluation": metrics["judge_s"],
        "time/total": metrics["wall_s"],
    }


def write_checkpoints(path: Path, rounds: Sequence[Mapping[str, Any]]) -> None:
    """``checkpoints.jsonl``, whole, from the applied rounds' metrics."""
    lines = [
        json.dumps(
            {
                "name": f"{metrics['round']:06d}",
                "batch": metrics["round"],
                "state_path": metrics["tinker/actor_state"],
                "sampler_path": metrics["tinker/actor_sampler"],
                "extras": {
                    "critic_state_path": metrics["tinker/critic_state"],
                    "critic_sampler_path": metrics["tinker/critic_sampler"],
                },
            }
        )
        for metrics in rounds
    ]
    text = "".join(f"{line}\n" for line in lines)
    write_whole(path, text.encode(), overwrite=True)
