"""Many trials on one machine: each in a process of its own, finished ones skipped.

python -m bench.learning.sweep specs.json --out curves --workers 12 --gpus 1 --seconds 540
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
from bench.learning.trial import TrialSpec, run_trial

__all__ = ("run_all",)

ROOT = Path(__file__).resolve().parents[2]


def run_all(
    specs: Sequence[TrialSpec],
    out: Path,
    *,
    workers: int = 2,
    gpus: int = 0,
    seconds: float = float("inf"),
) -> int:
    """Run what is missing in the folder; returns how many trials are unfinished afterwards.

    When `seconds` are over, what still runs is stopped; its curve so far stays as ``.partial``.
    """
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    waiting = [spec for spec in specs if not _curve(out, spec).exists()]
    with contextlib.ExitStack() as stack:
        running: dict[TrialSpec, subprocess.Popen[bytes]] = {}
        stack.callback(lambda: [child.kill() for child in running.values()])
        while (waiting or running) and time.monotonic() < deadline:
            while waiting and len(running) < workers:
                running[waiting[0]] = _start(waiting[0], out, len(waiting) % gpus if gpus else None)
                waiting.pop(0)
            for spec in [spec for spec, child in running.items() if child.poll() is not None]:
                code = running.pop(spec).returncode
                print(f"{spec.name}: {'done' if code == 0 else f'exit {code}'}", flush=True)
            time.sleep(0.2)
    return sum(not _curve(out, spec).exists() for spec in specs)


def _curve(out: Path, spec: TrialSpec) -> Path:
    return out / f"{spec.name}.json"


def _start(spec: TrialSpec, out: Path, gpu: int | None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    command = [sys.executable, "-m", "bench.learning.sweep", "--out", str(out.absolute())]
    command += ["--one", json.dumps(dataclasses.asdict(spec))]
    with _curve(out, spec).with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", type=Path, nargs="?", help="JSON list of specs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--one", help="a spec as JSON, run in this process")
    options = parser.parse_args()
    if options.one is None:
        specs = [TrialSpec(**spec) for spec in json.loads(options.specs.read_text())]
        left = run_all(
            specs,
            options.out,
            workers=options.workers,
            gpus=options.gpus,
            seconds=options.seconds,
        )
        print(f"{left} of {len(specs)} left", flush=True)
        return
    import torch

    torch.set_num_threads(1)
    spec = TrialSpec(**json.loads(options.one))
    anyio.run(lambda: run_trial(spec, _curve(options.out, spec)))


if __name__ == "__main__":
    main()
