"""How often a prompt's finished leaves end differently, by search, at one policy.

python -m bench.learning.mixed --task chain-20 --model models/chain-20 --seeds 3 --out results

Each method collects prompts at equal token budgets while the policy stands still; critics are
trained meanwhile, so a learned one may come to steer. Prompts of all seeds count together. The
first method is the yardstick: its share and its tokens are what the others' differences are
counted from. InfoTree claims 76.3 against 58.1 % at 5 % more tokens; that is the goal for ours.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.learning.methods import METHODS
from bench.learning.report import Curve, read_curves
from bench.learning.sweep import run_all
from bench.learning.tasks import FAMILIES
from bench.learning.trial import TrialSpec

__all__ = ("MixedShare", "mixed_shares")


@dataclass(frozen=True, kw_only=True)
class MixedShare:
    """One method, its seeds together.

    Attributes:
        method: its name.
        seeds: how many trials.
        prompts: how many were collected.
        share: of them, those with different outcomes.
        tokens_per_prompt: generated.
        gain, gain_ci95: share minus the yardstick's, with the normal interval.
        more_tokens: tokens per prompt, relative to the yardstick's, minus 1.
    """

    method: str
    seeds: int
    prompts: int
    share: float
    tokens_per_prompt: float
    gain: float
    gain_ci95: tuple[float, float]
    more_tokens: float


def mixed_shares(curves: Mapping[str, Sequence[Curve]]) -> list[MixedShare]:
    """From the curves of each method's seeds; the first method is the yardstick.

    >>> def curve(mixed, tokens):
    ...     return {"points": [{"prompts": 100, "mixed_ratio": mixed, "tokens": tokens}]}
    >>> _, found = mixed_shares({"flat": [curve(0.5, 1000)], "ours": [curve(0.7, 1040)]})
    >>> round(found.gain, 2), [round(end, 2) for end in found.gain_ci95], found.more_tokens
    (0.2, [0.07, 0.33], 0.04)
    """
    counted = {method: _counted(seeds) for method, seeds in curves.items()}
    base, prompts, tokens = next(iter(counted.values()))
    found = []
    for method, (share, own, spent) in counted.items():
        error = math.sqrt(share * (1 - share) / own + base * (1 - base) / prompts)
        gain = share - base
        found.append(
            MixedShare(
                method=method,
                seeds=len(curves[method]),
                prompts=own,
                share=share,
                tokens_per_prompt=spent / own,
                gain=gain,
                gain_ci95=(gain - 1.96 * error, gain + 1.96 * error),
                more_tokens=round(spent / own / (tokens / prompts) - 1, 6),
            )
        )
    return found


def _counted(curves: Sequence[Curve]) -> tuple[float, int, int]:
    """Mixed share, prompts and tokens of several curves."""
    points = [point for curve in curves for point in curve["points"] if point["prompts"]]
    prompts = int(sum(point["prompts"] for point in points))
    mixed = sum(point["mixed_ratio"] * point["prompts"] for point in points)
    return mixed / prompts, prompts, int(sum(curve["points"][-1]["tokens"] for curve in curves))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=sorted(FAMILIES), default="chain-5")
    parser.add_argument("--model", default="", help="the policy; the task's own")
    parser.add_argument("--methods", default="grpo,trace,focus", help="the first: the yardstick")
    parser.add_argument("--prompts", type=int, default=24, help="per round")
    parser.add_argument("--tokens-per-prompt", type=int, default=640)
    parser.add_argument("--budget", type=int, default=150_000, help="tokens per method and seed")
    parser.add_argument("--seeds", type=int, default=1, help="0, 1, …; counted together")
    parser.add_argument("--out", type=Path, required=True, help="finished trials there are kept")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=0)
    options = parser.parse_args()
    methods = options.methods.split(",")
    if unknown := [name for name in methods if name not in METHODS]:
        parser.error(f"unknown method {', '.join(unknown)}; known: {', '.join(METHODS)}")
    if options.seeds < 1:
        parser.error(f"{options.seeds} seeds: expected at least 1")
    specs = [
        TrialSpec(
            task=options.task,
            model=options.model,
            method=method,
            seed=seed,
            prompts=options.prompts,
            tokens_per_prompt=options.tokens_per_prompt,
            budget=options.budget,
            evaluations=2,
            frozen=True,
        )
        for seed in range(options.seeds)
        for method in methods
    ]
    folder = options.out / "frozen"
    left = run_all(specs, folder, workers=options.workers, gpus=options.gpus)
    by_name: dict[str, list[Curve]] = {name: [] for name in methods}
    for curve in read_curves(folder):
        if TrialSpec(**curve["spec"]) in specs:
            by_name[curve["spec"]["method"]].append(curve)
    found = mixed_shares({name: seeds for name, seeds in by_name.items() if seeds})
    print(f"{'method':<16}{'prompts':>8}{'mixed':>8}{'gain (95 %)':>24}{'tokens':>8}{'more':>8}")
    for one in found:
        low, high = one.gain_ci95
        print(
            f"{one.method:<16}{one.prompts:>8}{one.share:>8.1%}"
            f"{one.gain:>+9.1%} ({low:+.1%} to {high:+.1%}){one.tokens_per_prompt:>8.0f}"
            f"{one.more_tokens:>+8.1%}"
        )
    listed = [asdict(one) for one in found]
    (options.out / f"mixed-{options.task}.json").write_text(json.dumps(listed, indent=1))
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
