"""Kill a training run with SIGKILL at the worst moments and resume it.

This file is also the program that is killed: ``python test_kill_resume.py RUN MOMENT``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from focus.integrations.local import LocalLearner
from focus.records import read_critic_records
from focus.records.jsonl import accepted_attempts
from focus.sampling import derive_seed
from focus.tasks.registry import load_task
from focus.training.ledger import AppliedRound, RunLedger
from focus.training.run import TrainingRun
from focus.training.rundir import RunDirectory
from focus.training.settings import ActorSettings, CriticSettings, GateSettings, TrainSettings

torch.set_num_threads(1)

SETTINGS = TrainSettings(
    rounds=2,
    prompts=2,
    tokens_per_prompt=80,
    pilot_problems=1,
    eval_problems=2,
    keep_trees=1,
    actor=ActorSettings(minibatches=2),
    critic=CriticSettings(steps=1, batch_contexts=16),
    gate=GateSettings(checkpoints=4),
)

STAGES = {"collect": "round 1 collect", "update": "round 1 train"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Fatal:
    """Listens to a run and kills the process at its moment."""

    moment: str = ""

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        if name == STAGES.get(self.moment) and done == 1:
            die()

    def round(self, metrics: Mapping[str, Any]) -> None:
        pass


class FatalLearner(LocalLearner):
    """Dies with a checkpoint half written, or written and its round not yet applied."""

    moment = ""
    saves = 0

    def save(self, folder: Path) -> None:
        super().save(folder)
        self.saves += 1
        if self.moment == "save" and self.saves == 2:
            (folder / "state.json").write_text("{")
            die()

    @property
    def optimizer_steps(self) -> int:
        """The run reads it between the checkpoint and the ledger's transaction."""
        if self.moment == "commit" and self.saves == 2:
            die()
        return super().optimizer_steps


async def train(root: Path, *, moment: str = "") -> dict[str, Any]:
    resumes = (root / "ledger.sqlite").exists()
    learner = FatalLearner(SETTINGS, device="cpu")
    learner.moment = moment
    try:
        run = TrainingRun(
            settings=SETTINGS,
            task=load_task(SETTINGS.task),
            learner=learner,
            directory=RunDirectory.reopen(root) if resumes else RunDirectory.create(root),
            report=Fatal(moment),
        )
        return await run.run()
    finally:
        await learner.aclose()


def applied(root: Path) -> list[AppliedRound]:
    with closing(RunLedger(root / "ledger.sqlite")) as ledger:
        return ledger.applied()


def attempts(root: Path) -> list[tuple[int, int, str]]:
    with closing(RunLedger(root / "ledger.sqlite")) as ledger:
        return ledger.attempts()


def lines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]


def issued_keys(round_index: int) -> set[str]:
    problems = load_task(SETTINGS.task).problems(
        "train", SETTINGS.prompts, seed=derive_seed(SETTINGS.seed, "train", round_index)
    )
    return {problem.key for problem in problems}


def check_finished(root: Path, summary: Mapping[str, Any]) -> None:
    """Every round counts once, and every store says the same."""
    done = applied(root)
    assert [entry.round for entry in done] == [0, 1]
    assert [line["round"] for line in lines(root)] == [0, 1]
    assert [line["attempt"] for line in lines(root)] == [entry.attempt for entry in done]
    marks = accepted_attempts(root / "critic")
    assert marks == {entry.round: entry.attempt for entry in done}
    records = list(read_critic_records(root / "critic"))
    for entry in done:
        mine = [r.source for r in records if r.source.identity.round == entry.round]
        assert {source.identity.attempt for source in mine} == {entry.attempt}
        assert {source.key for source in mine} == issued_keys(entry.round)
    assert set(os.listdir(root / "checkpoints")) == {entry.checkpoint for entry in done}
    assert sorted(os.listdir(root / "models")) == ["final", "initial"]
    assert json.loads((root / "summary.json").read_text()) == summary
    assert summary["rounds"] == 2


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("runs") / "undisturbed"
    summary = asyncio.run(train(root))
    check_finished(root, summary)
    assert attempts(root) == [(0, 0, "applied"), (1, 0, "applied")]
    return summary


@pytest.mark.parametrize(
    "moment", ["collect", "update", "commit", pytest.param("save", marks=pytest.mark.full)]
)
def test_a_killed_run_goes_on_and_applies_each_round_once(
    moment: str, undisturbed: Mapping[str, Any], tmp_path: Path
) -> None:
    root = tmp_path / "run"
    command = [sys.executable, __file__, str(root), moment]
    died = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    (first,) = applied(root)
    before = lines(root)
    assert [line["round"] for line in before] == [0]
    state = "issued" if moment == "collect" else "collected"
    assert attempts(root) == [(0, 0, "applied"), (1, 0, state)]
    if moment == "commit":
        assert accepted_attempts(root / "critic") == {0: 0, 1: 0}, "the sink is ahead"

    moved = root.rename(tmp_path / "renamed")
    summary = asyncio.run(train(moved))
    check_finished(moved, summary)
    assert attempts(moved) == [(0, 0, "applied"), (1, 0, "abandoned"), (1, 1, "applied")]
    assert applied(moved)[0] == first
    assert lines(moved)[:1] == before
    assert summary["optimizer_steps"] == undisturbed["optimizer_steps"] == 4
    assert summary["accuracy_before"] == undisturbed["accuracy_before"]
    if moment == "commit":
        assert asyncio.run(train(moved)) == summary, "a finished run has nothing left to do"


if __name__ == "__main__":
    asyncio.run(train(Path(sys.argv[1]), moment=sys.argv[2]))
