"""The walkthrough as a user runs it: folds, branches at folds, credit on the notes."""

import json
import os
import subprocess
import sys
from pathlib import Path

from focus import load_tree

ROOT = Path(__file__).parents[2]


def test_the_quick_walkthrough_reports_its_folds(tmp_path: Path) -> None:
    out, tree = tmp_path / "figures.json", tmp_path / "tree.json"
    script = str(ROOT / "examples" / "browsecomp" / "walkthrough.py")
    command = [sys.executable, script, "--quick", "--json", str(out), "--tree", str(tree)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )
    assert done.returncode == 0, done.stderr
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
