"""The comparisons that were decided beforehand (preregistered.toml), stage by stage.

python -m bench.learning.registered A-chain-20 --stage tuning --out results --workers 24 --gpus 2
python -m bench.learning.registered A-chain-20 --stage final --out results --workers 24 --gpus 2
python -m bench.learning.registered A-chain-20 --stage report --out results
python -m bench.learning.registered C-smollm2 --stage all --workers 16 --gpus 2 --seconds 1500

`models` warms up the starting models that the folder lacks; `all` is every stage in turn, each
once the one before it is whole. With --write FILE the missing trials of tuning or final are
written for bench.learning.sweep instead of run. Finished trials and models are kept; what time
cut short goes on where it stopped, trial by trial. A name that no comparison has stands for all
that begin with it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.learning.comparison import (
    REGISTERED,
    Comparison,
    Registration,
    read_registration,
)
from bench.learning.report import read_curves, write_report
from bench.learning.sweep import Job, run_all, run_jobs
from bench.learning.trial import TrialSpec

from focus.errors import FocusError

STAGES = ("models", "tuning", "final", "report", "all")


def meant(asked: str, known: Iterable[str]) -> list[str]:
    """The comparison of that name, else all whose names begin so.

    >>> meant("A", ["A-x", "A-x-y", "B"]), meant("A-x", ["A-x", "A-x-y", "B"])
    (['A-x', 'A-x-y'], ['A-x'])
    """
    return [asked] if asked in known else [name for name in known if name.startswith(asked)]


def specs_of(comparison: Comparison, stage: str, out: Path) -> list[TrialSpec]:
    """Trials of a stage; the final ones need the tuning curves in the folder."""
    if stage == "tuning":
        return comparison.tuning()
    return comparison.finals(comparison.own(read_curves(out / "tuning", partial=True)))


def models_of(
    comparisons: Sequence[Comparison], registration: Registration, models: Path
) -> list[Job]:
    """How the starting models come about, those that have a recipe."""
    names = dict.fromkeys(Path(c.model).name for c in comparisons if c.model)
    jobs = []
    for name in names:
        recipe = registration.recipes.get(name, {})
        options = [text for key, value in recipe.items() for text in (f"--{key}", str(value))]
        made = models.absolute() / name
        module = ["bench.learning.warm", "--out", str(made), *options]
        jobs.append(Job(name=name, made=made, module=module))
    return jobs


def trials_of(comparisons: Sequence[Comparison], stage: str, out: Path) -> list[TrialSpec]:
    """Trials of a stage of several comparisons, seed by seed."""
    specs = [spec for comparison in comparisons for spec in specs_of(comparison, stage, out)]
    return sorted(specs, key=lambda spec: spec.seed)


def run_stages(
    comparisons: Sequence[Comparison],
    registration: Registration,
    stage: str,
    *,
    out: Path,
    models: Path,
    seconds: float,
    **machine: int,
) -> int:
    """Run a stage, or all until one is not whole in time; returns what is left of the last.

    Args:
        machine: `workers` and `gpus` of `run_jobs`.

    Raises:
        ConfigError: final trials are asked for and tuning ones are not there.
    """
    deadline, left = time.monotonic() + seconds, 0
    for each in STAGES[:3] if stage == "all" else (stage,):
        until = deadline - time.monotonic()
        if each == "models":
            jobs = models_of(comparisons, registration, models)
            left, whole = run_jobs(jobs, seconds=until, **machine), len(jobs)
        else:
            specs = trials_of(comparisons, each, out)
            left, whole = run_all(specs, out / each, seconds=until, **machine), len(specs)
        print(f"{each}: {left} of {whole} left", flush=True)
        if left:
            break
    return left


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
    names = [name for asked in options.names for name in meant(asked, known)]
    if unknown := [asked for asked in options.names if not meant(asked, known)]:
        parser.error(f"unknown comparison {', '.join(unknown)}; known: {', '.join(known)}")
    chosen = [known[name] for name in names]
    left = 0
    try:
        if options.write is not None:
            specs = trials_of(chosen, options.stage, options.out)
            options.write.write_text(json.dumps([asdict(spec) for spec in specs], indent=1))
            print(f"{len(specs)} trials in {options.write}")
            return 0
        if options.stage != "report":
            left = run_stages(
                chosen,
                registration,
                options.stage,
                out=options.out,
                models=options.models,
                seconds=options.seconds,
                workers=options.workers,
                gpus=options.gpus,
            )
    except (FocusError, ValueError) as error:
        parser.error(str(error))
    if options.stage == "report" or (options.stage == "all" and not left):
        print(report(names, registration, options.out).as_posix())
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
