"""Rounds of a run for trackers of experiments, each behind the extra of its own name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus._extras import require

__all__ = ("TRACKERS", "TrackedRun", "track")

Log = Callable[[Mapping[str, float], int], None]


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker calls the run.

    Attributes:
        project: the group that it belongs to.
        name: of the run.
        settings: its configuration.
        folder: where a tracker that writes files puts them.
    """

    project: str
    name: str
    settings: Mapping[str, Any]
    folder: Path


def track(kind: str, run: TrackedRun, rows: Sequence[Mapping[str, Any]]) -> int:
    """Send every number of every round; returns how many rounds.

    Args:
        kind: a key of `TRACKERS`.
        run: what to call it.
        rows: metrics by round; texts and lists are left out.

    Raises:
        MissingExtra: the tracker's package is not installed.
    """
    with TRACKERS[kind](run) as log:
        for row in rows:
            log(_numbers(row), row["round"])
    return len(rows)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in row.items() if isinstance(value, int | float)}


@contextmanager
def _tensorboard(run: TrackedRun) -> Iterator[Log]:
    writer = require("torch.utils.tensorboard", extra="tensorboard").SummaryWriter(str(run.folder))

    def log(numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _wandb(run: TrackedRun) -> Iterator[Log]:
    """Where it goes is wandb's own affair: WANDB_MODE=offline keeps it in the folder."""
    run.folder.mkdir(parents=True, exist_ok=True)
    tracked = require("wandb", extra="wandb").init(
        project=run.project, name=run.name, config=dict(run.settings), dir=str(run.folder)
    )
    try:
        yield lambda numbers, step: tracked.log(dict(numbers), step=step)
    finally:
        tracked.finish()


@contextmanager
def _trackio(run: TrackedRun) -> Iterator[Log]:
    """Kept on this machine; `trackio show` draws it."""
    trackio = require("trackio", extra="trackio")
    trackio.init(project=run.project, name=run.name, config=dict(run.settings))
    try:
        yield lambda numbers, step: trackio.log(dict(numbers), step=step)
    finally:
        trackio.finish()


TRACKERS: Mapping[str, Callable[[TrackedRun], AbstractContextManager[Log]]] = {
    "tensorboard": _tensorboard,
    "trackio": _trackio,
    "wandb": _wandb,
}
"""By name."""
