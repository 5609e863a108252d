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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from bench.learning.trial import TrialSpec, run_trial

__all__ = ("Job", "run_all", "run_jobs")

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A process and the file or folder that is there once it has done its work.

    Attributes:
        name: what is printed; made: where its result lies; its log lies beside that.
        module: of Python, with its arguments.
    """

    name: str
    made: Path
    module: Sequence[str]

    @property
    def is_done(self) -> bool:
        return self.made.exists()


def run_jobs(
    jobs: Sequence[Job], *, workers: int = 2, gpus: int = 0, seconds: float = float("inf")
) -> int:
    """Run what has no result yet; returns how many jobs have none afterwards.

    When `seconds` are over, what still runs is stopped.
    """
    deadline = time.monotonic() + seconds
    waiting = [job for job in jobs if not job.is_done]
    with contextlib.ExitStack() as stack:
        running: dict[subprocess.Popen[bytes], Job] = {}
        stack.callback(_stop, running)
        while (waiting or running) and time.monotonic() < deadline:
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                running[_start(job, len(waiting) % gpus if gpus else None)] = job
            for child in [child for child in running if child.poll() is not None]:
                code, name = child.returncode, running.pop(child).name
                print(f"{name}: {'done' if code == 0 else f'exit {code}'}", flush=True)
            time.sleep(0.2)
    return sum(not job.is_done for job in jobs)


def _stop(children: Iterable[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.kill()
        child.wait()


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
    jobs = [_trial(spec, out) for spec in specs]
    return run_jobs(jobs, workers=workers, gpus=gpus, seconds=seconds)


def _trial(spec: TrialSpec, out: Path) -> Job:
    one = json.dumps(dataclasses.asdict(spec))
    module = ["bench.learning.sweep", "--out", str(out.absolute()), "--one", one]
    return Job(name=spec.name, made=_curve(out, spec), module=module)


def _curve(out: Path, spec: TrialSpec) -> Path:
    return out / f"{spec.name}.json"


def _start(job: Job, gpu: int | None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    job.made.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", *job.module]
    with job.made.with_suffix(".log").open("wb") as log:
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
