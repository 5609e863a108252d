"""Ctrl-C ends the program, says how to go on, and damages nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from .conftest import TINY, Invoke


def test_ctrl_c_in_the_middle_of_a_run_loses_no_round(tmp_path: Path, invoke: Invoke) -> None:
    root = tmp_path / "run"
    changes = [part for change in TINY for part in ("--set", change)]
    command = [sys.executable, "-m", "focus", "train", "--preset", "smoke", "--out", str(root)]
    process = subprocess.Popen(
        [*command, "--rounds", "500", *changes],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # A parent that ignores Ctrl-C, as shells let background jobs do, would pass that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[0] == "0":
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"stopped: go on with: focus train --resume {root}" in said
    assert "Traceback" not in said
    applied = len((root / "metrics.jsonl").read_text().splitlines())
    invoke("train", "--resume", root, "--rounds", applied + 1)
    rounds = [
        json.loads(line)["round"] for line in (root / "metrics.jsonl").read_text().splitlines()
    ]
    assert rounds == list(range(applied + 1))
