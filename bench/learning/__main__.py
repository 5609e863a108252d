"""Compare methods on a task: tune each on one seed, run it on fresh ones, write the report.

python -m bench.learning --task chain-5 --methods grpo,focus-unbiased --seeds 5 --out results
"""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path

from bench.learning.comparison import Comparison, Grid
from bench.learning.methods import METHODS
from bench.learning.report import read_curves, write_report
from bench.learning.sweep import run_all
from bench.learning.tasks import FAMILIES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=sorted(FAMILIES), default="chain-5")
    parser.add_argument("--model", default="", help="start of every trial; the task's own")
    parser.add_argument(
        "--methods", default="grpo,reinforce,focus-unbiased", help=", ".join(METHODS)
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rates", default="5e-5,1e-4,2e-4", help="learning rates to try")
    parser.add_argument(
        "--batches",
        default="8/8/75,8/4/640",
        help="prompts/steps of a round, or prompts/steps/tokens of a prompt, to try",
    )
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
    batches = [batch.split("/") for batch in options.batches.split(",")]
    comparison = Comparison(
        name=options.task,
        task=options.task,
        model=options.model,
        methods=tuple(methods),
        grid=Grid(
            rates=tuple(map(float, options.rates.split(","))),
            batches=tuple(tuple(map(int, batch)) for batch in batches),
        ),
        seeds=options.seeds,
        budget=options.budget,
        tokens_per_prompt=options.tokens_per_prompt,
        evaluations=options.evaluations,
        eval_problems=options.eval_problems,
    )
    machine = {"workers": options.workers, "gpus": options.gpus}
    run_all(comparison.tuning(), options.out / "tuning", **machine)
    finals = comparison.finals(read_curves(options.out / "tuning"))
    left = run_all(finals, options.out / "final", **machine)
    facts = {"task": options.task, "budget": options.budget, "date": date.today().isoformat()}
    write_report(comparison.own(read_curves(options.out / "final")), options.out, facts=facts)
    print((options.out / "report.html").as_posix())
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
