"""The result of a whole run, and the versions that it depends on."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from focus.training.settings import TrainSettings
from focus.training.solving import Accuracy
from focus.training.steering import Steering

__all__ = ("run_summary", "versions")


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    found = {"python": platform.python_version()}
    for name in ("focus-rl", "torch", "transformers", "numpy", "math-verify"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def run_summary(
    settings: TrainSettings,
    rounds: Sequence[Mapping[str, Any]],
    steering: Steering,
    *,
    before: Accuracy,
    after: Accuracy,
    pilot_tokens: int,
    optimizer_steps: int,
) -> dict[str, Any]:
    """What ``summary.json`` holds (docs/reference/run-directory.md).

    Args:
        rounds: metrics of the applied rounds, in order.
        steering: as the last round left it.
        before, after: held-out accuracy of the first and the last weights.
        pilot_tokens: generated before the first round, beside those of the rounds.
        optimizer_steps: actor steps of the whole run.
    """
    report = steering.report
    computed = sum(metrics.get("actor_tokens_computed", 0) for metrics in rounds)
    distinct = sum(metrics.get("actor_tokens_distinct", 0) for metrics in rounds)
    return {
        "accuracy_before": before.accuracy,
        "accuracy_after": after.accuracy,
        "accuracy_ci95": {"before": list(before.ci95), "after": list(after.ci95)},
        "eval_problems": after.n,
        "tokens_generated": pilot_tokens + sum(metrics["tokens_generated"] for metrics in rounds),
        "critic_brier": None if report is None else report.critic_brier,
        "constant_brier": None if report is None else report.constant_brier,
        "critic_gate": steering.opened_round is not None,
        "critic_gate_round": steering.opened_round,
        "critic_gate_last": None if report is None else report.to_dict(),
        "root_values": [metrics["root_value"] for metrics in rounds],
        "rounds": len(rounds),
        "optimizer_steps": optimizer_steps,
        "learner_tokens": computed or None,
        "eta_learn": distinct / computed if computed else None,
        "train_wall_s": round(sum(metrics["wall_s"] for metrics in rounds), 3),
        "seed": settings.seed,
        "versions": versions(),
    }
