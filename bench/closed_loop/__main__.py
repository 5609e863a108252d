"""Runs `focus loop` unattended for every seed and measures what came of it.

python -m bench.closed_loop --quick --json out.json       what focus bench closed-loop runs
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from focus.loop.tags import RoundTags

from .measure import Measured, measure

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    rounds: int
    seeds: int
    prompts: int
    outcomes: int
    heldout: int


QUICK = Plan(rounds=3, seeds=3, prompts=16, outcomes=120, heldout=120)
FULL = Plan(rounds=10, seeds=5, prompts=16, outcomes=120, heldout=100)


def config(folder: Path, plan: Plan, seed: int) -> Path:
    """The file that `focus loop` is given."""
    actor = [sys.executable, "-m", "bench.closed_loop.actor", str(folder)]
    actor += ["--rounds", str(plan.rounds), "--prompts", str(plan.prompts)]
    actor += ["--outcomes", str(plan.outcomes), "--seed", str(seed)]
    trainer = ["--model", "builtin", "--outcome-rounds", "2", "--set", f"seed={seed}"]
    path = folder / "loop.toml"
    path.write_text(
        "\n".join(
            [
                f"folder = {json.dumps(str(folder))}",
                f"outcomes = {json.dumps(str(folder / 'outcomes'))}",
                "staleness = 0",
                "[actor]",
                f"command = {json.dumps(actor)}",
                f"folder = {json.dumps(str(ROOT))}",
                "[trainer]",
                f"options = {json.dumps(trainer)}",
                "",
            ]
        )
    )
    return path


def run_loop(path: Path) -> None:
    """`focus loop` to its end; its words go to stderr.

    Raises:
        SystemExit: it failed.
    """
    done = subprocess.run([sys.executable, "-m", "focus", "loop", str(path)], stdout=sys.stderr)
    if done.returncode:
        raise SystemExit(f"focus loop {path} ended with exit code {done.returncode}")


def one_seed(folder: Path, plan: Plan, seed: int) -> Measured:
    """Run and measure one loop; one that was measured before is taken as it is."""
    path = folder / "measured.json"
    if not path.exists():
        run_loop(config(folder, plan, seed))
        made = asyncio.run(measure(folder, rounds=plan.rounds, seed=seed, count=plan.heldout))
        path.write_text(json.dumps(asdict(made)))
    return Measured(**json.loads(path.read_text()))


def figures(
    plan: Plan, found: Sequence[Measured], folders: Sequence[Path], wall_s: float
) -> dict[str, Any]:
    """The report: means over seeds, and each seed's own figure."""
    by_seed = {
        "critic_versions": [len(one.versions) for one in found],
        "brier_last": [one.brier_by_version[-1] for one in found],
        "brier_constant": [one.brier_constant for one in found],
        "mixed_ratio": [one.mixed_ratio for one in found],
        "mixed_ratio_constant": [one.mixed_ratio_constant for one in found],
        "tokens_per_problem": [one.tokens for one in found],
        "tokens_per_problem_constant": [one.tokens_constant for one in found],
        "steered_rounds": [_steered(folder) for folder in folders],
    }
    return {
        "rounds": plan.rounds,
        "seeds": plan.seeds,
        "store": str(folders[0] / "critics"),
        **{name: fmean(values) for name, values in by_seed.items()},
        **{f"{name}_by_seed": values for name, values in by_seed.items()},
        "critic_versions": min(by_seed["critic_versions"]),
        "rounds_by_seed": [len(RoundTags(folder).rounds()) for folder in folders],
        "store_by_seed": [str(folder / "critics") for folder in folders],
        "brier_by_version_by_seed": [list(one.brier_by_version) for one in found],
        "measured_by_seed": [asdict(one) for one in found],
        "wall_s": round(wall_s, 1),
    }


def _steered(folder: Path) -> int:
    tags = RoundTags(folder)
    return sum(1 for r in tags.rounds() if (tag := tags.read(r)) is not None and tag.steering)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = QUICK if options.quick else FULL
    plan = Plan(
        **{
            **asdict(plan),
            "rounds": options.rounds or plan.rounds,
            "seeds": options.seeds or plan.seeds,
        }
    )
    out = options.out or Path(tempfile.mkdtemp(prefix="closed-loop-"))
    started, folders, found = time.monotonic(), [], []
    for seed in range(plan.seeds):
        folder = out / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        print(f"seed {seed}, {seed + 1} of {plan.seeds}: {folder}", file=sys.stderr, flush=True)
        found.append(one_seed(folder, plan, seed))
        folders.append(folder)
    report = figures(plan, found, folders, time.monotonic() - started)
    text = json.dumps(report, indent=2) + "\n"
    if options.json is not None:
        options.json.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
