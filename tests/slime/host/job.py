"""Slime's training job: collect, train, save, evaluate, round by round; and a restart of it."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .convert import flattened, shipped, train_data
from .parallel import Layout
from .rollout import (
    DataSource,
    GenerateState,
    SlimeLoop,
    check_rollout_ids,
    evaluate_dataset,
    generate_rollout,
)
from .trainer import train_actor

__all__ = ("Job", "Killed", "last_saved")

Point = Callable[[str, int], None]


class Killed(BaseException):
    """The process is gone; nobody cleans up."""


def last_saved(args: Any) -> int:
    """The round of the last checkpoint; -1 when there is none."""
    path = Path(args.save) / "latest_checkpointed_iteration.txt"
    return int(path.read_text()) if path.exists() else -1


class Job:
    """One process of the job, from where its checkpoint left off.

    Attributes:
        model: trained with plain gradient descent.
        applied: for every step in the model, the rollout ids of its batch, and which
            process took it. Saved and loaded with the model.
    """

    def __init__(
        self,
        args: Any,
        rows: Sequence[dict[str, Any]],
        model: torch.nn.Module,
        *,
        process: int = 0,
        layout: Layout | None = None,
        save_every: int = 1,
        at: Point = lambda name, round: None,
    ) -> None:
        self.args = copy.copy(args)
        self.rows = rows
        self.model = model
        self.layout = layout or Layout()
        self.applied: list[dict[str, Any]] = []
        self._process, self._save_every, self._at = process, save_every, at
        self._source = DataSource(self.args, rows)
        self._start = 0
        self.losses: list[float] = []
        if self.args.load is not None:
            self._resume()

    def run(self) -> None:
        """Rounds from the start to `num_rollout`, like Slime's train.py."""
        loop = SlimeLoop()
        try:
            for rollout_id in range(self._start, self.args.num_rollout):
                self._at("start", rollout_id)
                nested = loop.run(generate_rollout(self.args, self._source))
                check_rollout_ids(nested)
                samples = flattened(nested)
                self._at("collected", rollout_id)
                self._train(samples)
                self._at("stepped", rollout_id)
                last = rollout_id + 1 == self.args.num_rollout
                if (rollout_id + 1) % self._save_every == 0 or last:
                    self._save(rollout_id)
                self._at("saved", rollout_id)
                every = self.args.eval_interval
                if every is not None and (rollout_id + 1) % every == 0:
                    loop.run(evaluate_dataset(self.args, self.rows[:2], path=None))
        finally:
            loop.close()
            GenerateState.forget()

    def _train(self, samples: list[Any]) -> None:
        parcels, schedule = shipped(self.args, train_data(self.args, samples), self.layout)
        assert schedule.dropped == 0
        for step in train_actor(self.args, self.model, parcels, self.layout):
            self.losses.append(step.loss)
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    if name in step.gradients:
                        parameter -= 0.01 * step.gradients[name]
        prompts = sorted({sample.rollout_id for sample in samples})
        self.applied.append({"process": self._process, "prompts": prompts})

    def _save(self, rollout_id: int) -> None:
        folder = Path(self.args.save)
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.tolist() for name, value in self.model.state_dict().items()}
        made = folder / f"iter_{rollout_id:07d}.json"
        made.write_text(json.dumps({"model": state, "applied": self.applied}))
        self._source.save(rollout_id)
        tracker = folder / "latest_checkpointed_iteration.txt"
        tracker.with_suffix(".tmp").write_text(str(rollout_id))
        os.replace(tracker.with_suffix(".tmp"), tracker)

    def _resume(self) -> None:
        rollout_id = last_saved(self.args)
        if rollout_id < 0:
            return
        stored = json.loads((Path(self.args.load) / f"iter_{rollout_id:07d}.json").read_text())
        self.model.load_state_dict(
            {name: torch.tensor(v, dtype=torch.float64) for name, v in stored["model"].items()}
        )
        self.applied = stored["applied"]
        self._source.load(rollout_id)
        self._start = rollout_id + 1
