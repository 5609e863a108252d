"""docs/reference/run-directory.md names what a run really writes."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus.integrations.local import LocalLearner
from focus.tasks import load_task
from focus.training import collection_folder
from focus.training.run import TrainingRun
from focus.training.rundir import RunDirectory
from focus.training.settings import PRESETS, settings_from

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "run-directory.md"


class Quiet:
    def stage(self, name: str, done: int, total: int, note: str = "") -> None: ...

    def round(self, metrics: Mapping[str, Any]) -> None: ...


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest run that does everything once."""
    settings = settings_from(
        {
            "rounds": 1,
            "prompts": 2,
            "tokens_per_prompt": 160,
            "pilot_problems": 2,
            "eval_problems": 2,
            "gate": {"checkpoints": 8},
            "actor": {"step_kl": 1e-4},
            "critic": {"steps": 1},
        },
        base=PRESETS["smoke"],
    )
    root = tmp_path_factory.mktemp("docs") / "run"

    async def train() -> None:
        learner = LocalLearner(settings, device="cpu")
        try:
            await TrainingRun(
                settings=settings,
                task=load_task("demo"),
                learner=learner,
                directory=RunDirectory.create(root),
                report=Quiet(),
            ).run()
        finally:
            await learner.aclose()

    anyio.run(train)
    return root


def keys(heading: str) -> set[str]:
    """Names in the first column of the table under a heading."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    table = next(part for part in section if part.startswith(heading))
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_files(run: Path) -> None:
    top = {name.split("/")[0] for name in first_table()}
    assert top == {path.name for path in run.iterdir()}


def first_table() -> set[str]:
    text = PAGE.read_text(encoding="utf-8").split("\n## ")[0]
    return {
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }


def test_metrics(run: Path) -> None:
    [line] = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert keys("Metrics") == json.loads(line).keys()


def test_summary(run: Path) -> None:
    assert (
        keys("Summary of a training run")
        == json.loads((run / "summary.json").read_text(encoding="utf-8")).keys()
    )


def test_ledger_tables(run: Path) -> None:
    with sqlite3.connect(run / "ledger.sqlite") as ledger:
        tables = {
            name for (name,) in ledger.execute("select name from sqlite_master where sql > ''")
        }
    ledger.close()
    assert keys("Rounds and attempts") == tables


def test_checkpoint(run: Path) -> None:
    [folder] = (run / "checkpoints").iterdir()
    for name in keys("A checkpoint"):
        assert (folder / name).exists(), name
    assert (folder / "critic" / "value_head.safetensors").exists()


def test_folder_of_a_collection() -> None:
    listed = re.findall(r"^ {4}([\w./]+) {2,}", collection_folder.__doc__ or "", re.MULTILINE)
    assert keys("The folder of a collection") == set(listed)
