"""The walkthrough as a user runs it: folds, branches at folds, credit on the notes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from focus import load_tree

ROOT = Path(__file__).parents[2]
WALKTHROUGH = "examples/browsecomp/walkthrough.py"


def ran(script: str, *options: Any) -> subprocess.CompletedProcess[str]:
    """A script of the repository, to its end, on the CPU."""
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *map(str, options)],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_quick_walkthrough_reports_its_folds(tmp_path: Path) -> None:
    out, tree = tmp_path / "figures.json", tmp_path / "tree.json"
    done = ran(WALKTHROUGH, "--quick", "--json", out, "--tree", tree)
    figures = json.loads(out.read_text())
    assert list(figures) == [
        "folds",
        "branches_at_folds",
        "fold_tokens_trained",
        "success_before",
        "success_after",
    ]
    assert json.loads(done.stdout) == figures
    assert min(figures[name] for name in ("folds", "branches_at_folds", "fold_tokens_trained")) > 20
    assert 0 <= figures["success_before"] < 0.7
    assert 0 < figures["success_after"] <= 1
    assert "success before" in done.stderr
    stored = load_tree(tree)
    assert any(node.rebased is not None for node in stored)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_training_on_tool_calls_raises_success_on_held_out_questions(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    ran(WALKTHROUGH, "--json", out)
    figures = json.loads(out.read_text())
    assert figures["success_after"] - figures["success_before"] >= 0.15


@pytest.mark.full
def test_a_model_of_another_size_is_built_and_trained_without_bm25s(tmp_path: Path) -> None:
    small = ("--model-size", "tiny", "--episodes", 10, "--updates", 2, "--evaluate", 0)
    built = ran("scripts/build_agent", *small, "--ranking", "counts", "--out", tmp_path)
    assert "160,448 parameters on cpu" in built.stdout
    options = ("--quick", "--rounds", 1, "--ranking", "counts", "--learning-rate", 1e-4)
    trained = ran(WALKTHROUGH, *options, "--model", tmp_path, "--device", "cpu")
    assert "160,448 parameters on cpu" in trained.stderr
