"""examples/math/train_tinker.py, run as its reader would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tinker

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "math" / "train_tinker.py"
TINY = (
    "prompts=2 tokens_per_prompt=80 pilot_problems=1 eval_problems=2 gate.checkpoints=4 "
    "critic.steps=1"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )


def test_loopback_writes_the_figures_and_says_them(tmp_path: Path) -> None:
    result, out = tmp_path / "result.json", tmp_path / "run"
    settings = [part for pair in TINY.split() for part in ("--set", pair)]
    where = ("--json", str(result), "--out", str(out))
    done = run("--loopback", "--rounds", "1", *where, *settings)
    assert done.returncode == 0, done.stderr
    summary = json.loads(result.read_text())
    assert summary["sdk_version"] == tinker.__version__
    for name in ("accuracy_before", "accuracy_after", "critic_brier", "constant_brier"):
        assert 0.0 <= summary[name] <= 1.0
    assert "Tinker SDK   0.38" in done.stdout
    assert "checkpoints.jsonl" in done.stdout
    assert "Traceback" not in done.stderr
    assert (out / "checkpoints.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "--data FILE, or try it out with --loopback"),
        (["--loopback", "--model", "x"], "trains the shipped model"),
        (["--loopback", "--rounds", "0"], "--rounds must be at least 1"),
        (["--loopback", "--set", "actor.epochs=2"], "set both to 1"),
        (["--loopback", "--set", "temperature=0.7"], "collect at temperature 1"),
    ],
)
def test_what_cannot_work_is_said_in_a_line(arguments: list[str], reason: str) -> None:
    done = run(*arguments)
    assert done.returncode in (1, 2)
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
