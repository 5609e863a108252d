"""The comparisons that were decided beforehand (preregistered.toml), stage by stage.

python -m bench.learning.registered A-chain-20 --stage tuning --out results --workers 24 --gpus 2
python -m bench.learning.registered A-chain-20 --stage final --out results --workers 24 --gpus 2
python -m bench.learning.registered A-chain-20 --stage report --out results

With --write FILE a stage's missing trials are written for bench.learning.sweep instead of run.
Finished trials are kept; a stage that time cut short goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.learning.comparison import (
    REGISTERED,
    Comparison,
    Registration,
    read_registration,
)
from bench.learning.report import read_curves, write_report
from bench.learning.sweep import run_all
from bench.learning.trial import TrialSpec

from focus.errors import FocusError

STAGES = ("tuning", "final", "report")


def specs_of(comparison: Comparison, stage: str, out: Path) -> list[TrialSpec]:
    """Trials of a stage; the final ones need the tuning curves in the folder."""
    if stage == "tuning":
        return comparison.tuning()
    return comparison.finals(comparison.own(read_curves(out / "tuning", partial=True)))


def resolved(comparison: Comparison, registration: Registration, out: Path) -> Comparison:
    """With the methods that an earlier comparison's results bring in."""
    if not comparison.best:
        return comparison
    earlier = registration.comparisons[comparison.best_of]
    return comparison.with_best(earlier.own(read_curves(out / "final", partial=True)))


def report(names: Sequence[str], registration: Registration, out: Path) -> Path:
    """Write the report of what is there, trials that were cut short included."""
    facts = {"comparisons": ", ".join(names), "registered": registration.date}
    found = read_curves(out / "final", partial=True)
    curves = [c for name in names for c in registration.comparisons[name].own(found)]
    write_report(curves, out, facts=facts, prices=registration.prices)
    return out / "report.html"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="comparisons; without any, lists them")
    parser.add_argument("--file", type=Path, default=REGISTERED)
    parser.add_argument("--models", type=Path, default=Path("models"), help="starting models")
    parser.add_argument("--stage", choices=STAGES, default="tuning")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--write", type=Path, help="write the stage's trials here and stop")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    registration = read_registration(options.file, models=options.models)
    known = registration.comparisons
    if not options.names:
        for name, comparison in known.items():
            print(f"{name}: {comparison.task}, {', '.join(comparison.methods)}")
        return 0
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown comparison {', '.join(unknown)}; known: {', '.join(known)}")
    if options.stage == "report":
        print(report(options.names, registration, options.out).as_posix())
        return 0
    try:
        chosen = [resolved(known[name], registration, options.out) for name in options.names]
        specs = [s for c in chosen for s in specs_of(c, options.stage, options.out)]
    except (FocusError, ValueError) as error:
        parser.error(str(error))
    if options.write is not None:
        options.write.write_text(json.dumps([asdict(spec) for spec in specs], indent=1))
        print(f"{len(specs)} trials in {options.write}")
        return 0
    left = run_all(
        specs,
        options.out / options.stage,
        workers=options.workers,
        gpus=options.gpus,
        seconds=options.seconds,
    )
    print(f"{left} of {len(specs)} left", flush=True)
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
