"""Ctrl-C ends the program, says how to go on, and damages nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from .conftest import TINY, Invoke

# A parent that ignores Ctrl-C, as shells let background jobs do, passes that on.
FOCUS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from focus.cli.main import app
app()
"""


def test_ctrl_c_in_the_middle_of_a_run_loses_no_round(tmp_path: Path, invoke: Invoke) -> None:
    root = tmp_path / "run"
    changes = [part for change in TINY for part in ("--set", change)]
    command = ["train", "--preset", "smoke", "--out", str(root), "--rounds", "500", *changes]
    process = subprocess.Popen(
        [sys.executable, "-c", FOCUS, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[0] == "0":
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=500)
    assert process.returncode == 130
    assert f"stopped: go on with: focus train --resume {root}" in said
    assert "Traceback" not in said
    applied = len((root / "metrics.jsonl").read_text().splitlines())
    invoke("train", "--resume", root, "--rounds", applied + 1)
    rounds = [
        json.loads(line)["round"] for line in (root / "metrics.jsonl").read_text().splitlines()
    ]
    assert rounds == list(range(applied + 1))


BREAKS = """
import os, signal
import anyio, typer
from rich.console import Console
from focus.cli.interrupt import run_until_interrupted

async def work(progress):
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await anyio.sleep_forever()
    finally:
        raise RuntimeError("a helper is gone")

try:
    run_until_interrupted(work, console=Console(stderr=True), last_words="go on")
except typer.Exit as end:
    raise SystemExit(end.exit_code)
"""


def test_what_breaks_while_it_stops_is_said_and_is_no_crash() -> None:
    done = subprocess.run([sys.executable, "-c", BREAKS], capture_output=True, text=True)
    assert done.returncode == 143
    assert "while stopping" in done.stderr
    assert "a helper is gone" in done.stderr
    assert "stopped: go on" in done.stderr
    assert "Traceback" not in done.stderr
