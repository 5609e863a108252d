"""Compare methods on a task: tune each on one seed, run it on fresh ones, write the report.

python -m bench.learning --task chain-5 --methods grpo,focus --seeds 5 --out results
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from datetime import date
from pathlib import Path

from bench.learning.methods import METHODS
from bench.learning.report import best_rates, read_curves, write_report
from bench.learning.sweep import run_all
from bench.learning.tasks import FAMILIES
from bench.learning.trial import TrialSpec

TUNING_SEED = 1000
TUNING_SHARE = 0.4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=sorted(FAMILIES), default="chain-5")
    parser.add_argument("--model", default="", help="start of every trial; the task's own")
    parser.add_argument("--methods", default="grpo,focus", help=", ".join(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rates", default="5e-5,1e-4,2e-4", help="learning rates to try")
    parser.add_argument("--batches", default="8/4,24/4", help="prompts/steps of a round to try")
    parser.add_argument("--budget", type=int, default=120_000, help="generated tokens a trial")
    parser.add_argument("--tokens-per-prompt", type=int, default=640)
    parser.add_argument("--eval-problems", type=int, default=256)
    parser.add_argument("--evaluations", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True, help="finished trials there are kept")
    parser.add_argument("--workers", type=int, default=2, help="trials at once")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs to spread them over")
    options = parser.parse_args()
    methods = options.methods.split(",")
    if unknown := [name for name in methods if name not in METHODS]:
        parser.error(f"unknown method {', '.join(unknown)}; known: {', '.join(METHODS)}")
    base = TrialSpec(
        task=options.task,
        model=options.model,
        method=methods[0],
        tokens_per_prompt=options.tokens_per_prompt,
        budget=options.budget,
        eval_problems=options.eval_problems,
        evaluations=options.evaluations,
    )
    tuning = _tune(base, methods, options)
    finals = [
        TrialSpec(**{**tuning[method], "seed": seed, "budget": options.budget})
        for method in methods
        for seed in range(options.seeds)
    ]
    run_all(finals, options.out / "curves", workers=options.workers, gpus=options.gpus)
    facts = {"task": options.task, "budget": options.budget, "date": date.today().isoformat()}
    write_report(read_curves(options.out / "curves"), options.out, facts=facts)
    print((options.out / "report.html").as_posix())
    return 0


def _tune(
    base: TrialSpec, methods: list[str], options: argparse.Namespace
) -> dict[str, dict[str, object]]:
    """Per method its best rate and batch on a seed of its own, at part of the budget."""
    specs = []
    for method in methods:
        for rate in options.rates.split(","):
            for batch in options.batches.split(","):
                prompts, steps = map(int, batch.split("/"))
                specs.append(
                    dataclasses.replace(
                        base,
                        method=method,
                        seed=TUNING_SEED,
                        learning_rate=float(rate),
                        prompts=prompts,
                        minibatches=steps,
                        budget=round(TUNING_SHARE * base.budget),
                    )
                )
    folder = options.out / "tuning"
    run_all(specs, folder, workers=options.workers, gpus=options.gpus)
    best = best_rates(read_curves(folder))
    (options.out / "tuned.json").write_text(json.dumps(best, indent=1))
    return best


if __name__ == "__main__":
    sys.exit(main())
