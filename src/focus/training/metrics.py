"""What a round measured, as JSON lines and for TensorBoard."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from focus.collect import Collection, total
from focus.records.files import write_whole
from focus.training.gate import GateReport, GateSample
from focus.training.rundir import RunDirectory

__all__ = ("MetricsLog", "judgement_metrics", "round_metrics")


def round_metrics(round_index: int, collections: Sequence[Collection]) -> dict[str, Any]:
    """Figures of one round's trees.

    `collection_success` is the mean outcome of root rollouts bought before any adaptive
    choice matters; it is not accuracy. `mixed_ratio` is the share of problems whose
    finished leaves show both a better and a worse outcome.
    """
    ledger = total([collection.ledger for collection in collections])
    outcomes = [y for collection in collections for y in collection.opening_outcomes]
    roots = [collection.tree.root.value for collection in collections]
    known = [value for value in roots if value is not None]
    return {
        "round": round_index,
        "policy_version": collections[0].tree.header.policy_version,
        "critic_version": collections[0].tree.header.critic_version,
        "estimator": collections[0].credit.estimator,
        "collection_success": sum(outcomes) / len(outcomes) if outcomes else None,
        "mixed_ratio": sum(map(_is_mixed, collections)) / len(collections),
        "root_value": sum(known) / len(known) if known else None,
        "nodes": sum(len(collection.tree) for collection in collections),
        "leaves": sum(len(collection.tree.leaves()) for collection in collections),
        **ledger.to_dict(),
    }


def _is_mixed(collection: Collection) -> bool:
    return len({collection.tree.outcome(node) for node in collection.tree.terminals()}) > 1


def judgement_metrics(samples: Sequence[GateSample], report: GateReport) -> dict[str, Any]:
    """Figures of one judgement of the critic, and its mean value at the problems' roots."""
    roots = [sample.prediction for sample in samples if sample.depth == 0]
    return {
        "critic_brier": report.critic_brier,
        "constant_brier": report.constant_brier,
        "depth_brier": report.depth_brier,
        "critic_gain_lower": report.gain_lower,
        "critic_gate": report.passed,
        "critic_root_value": sum(roots) / len(roots),
        "gate_outcome": report.mean_outcome,
    }


class MetricsLog:
    """``metrics.jsonl`` and, when the package is installed, TensorBoard events.

    The ledger is the truth: on opening, the file is rewritten from the rounds it holds,
    so lines of a dead attempt never stay.
    """

    def __init__(self, directory: RunDirectory, applied: Sequence[Mapping[str, Any]]) -> None:
        self._path = directory.metrics
        lines = "".join(_line(metrics) for metrics in applied)
        write_whole(self._path, lines.encode(), overwrite=True)
        self._writer: Any = None
        if importlib.util.find_spec("tensorboard") and importlib.util.find_spec("torch"):
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(directory.tensorboard), purge_step=len(applied))

    def append(self, metrics: Mapping[str, Any]) -> None:
        """Add one applied round."""
        with open(self._path, "ab") as stream:
            os.write(stream.fileno(), _line(metrics).encode())
        if self._writer is not None:
            for name, value in metrics.items():
                if isinstance(value, int | float):
                    self._writer.add_scalar(name, value, metrics["round"])
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _line(metrics: Mapping[str, Any]) -> str:
    return json.dumps(metrics, sort_keys=True, allow_nan=False) + "\n"
