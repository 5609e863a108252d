"""How good each method's gradient is, against the true one of the tabular game.

python -m bench.learning.gradients --task tabular --methods grpo,rloo,focus --out results

The policy stands still at its start. Each round of a method gives an estimate g; over the
rounds, with the true gradient t and n thousand tokens a round:

    cosine    mean over rounds of cos(g, t)
    skew      sine of the angle between the mean of g and t
    bias      what is left of the skew without that of noise alone: no step size removes it
    scale     length of the mean's part along t, in lengths of t
    noise     n · E|g - mean|² / |mean|²: relative variance of an estimate from 1,000 tokens
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import numpy as np
from bench.learning.methods import METHODS
from bench.learning.tabular.game import Table
from bench.learning.tabular.learner import TabularLearner
from bench.learning.tasks import FAMILIES
from bench.learning.trial import Trial, TrialSpec

from focus.execution import AdmissionPool, ExecutionServices
from focus.records.records import ActorRecord

__all__ = ("GradientQuality", "gradient_quality", "study")


@dataclass(frozen=True, kw_only=True)
class GradientQuality:
    """One method on one task; see the module's text.

    Attributes:
        task, method: what was measured.
        rounds, tokens_per_round: how much of it.
        cosine, cosine_error: mean over rounds, and its standard error.
        skew, scale: of the mean estimate.
        skew_floor: what noise alone would show: the mean's own standard error over its length.
        bias: √(skew² − skew_floor²), 0 where noise explains all of it.
        noise: relative variance per thousand tokens.
    """

    task: str
    method: str
    rounds: int
    tokens_per_round: float
    cosine: float
    cosine_error: float
    skew: float
    skew_floor: float
    bias: float
    scale: float
    noise: float


def gradient_quality(
    estimates: Sequence[Table], truth: Table, *, tokens: float, task: str = "", method: str = ""
) -> GradientQuality:
    """From at least two estimates at one policy.

    >>> truth = np.array([1.0, 0.0])
    >>> found = gradient_quality([np.array([2.0, 1.0]), np.array([2.0, -1.0])], truth, tokens=500)
    >>> round(found.cosine, 3), round(found.skew, 3), found.scale, found.noise
    (0.894, 0.0, 2.0, 0.25)
    """
    stacked = np.stack([np.ravel(estimate) for estimate in estimates])
    aim = np.ravel(truth)
    mean = stacked.mean(axis=0)
    length, wanted = float(np.linalg.norm(mean)), float(np.linalg.norm(aim))
    cosines = stacked @ aim / (np.linalg.norm(stacked, axis=1) * wanted + 1e-300)
    spread = float(((stacked - mean) ** 2).sum() / (len(stacked) - 1))
    along = float(mean @ aim) / (length * wanted)
    skew = math.sqrt(max(0.0, 1 - along * along))
    floor = math.sqrt(spread / len(stacked)) / length
    return GradientQuality(
        task=task,
        method=method,
        rounds=len(stacked),
        tokens_per_round=tokens,
        cosine=float(cosines.mean()),
        cosine_error=float(cosines.std(ddof=1) / math.sqrt(len(stacked))),
        skew=skew,
        skew_floor=floor,
        bias=math.sqrt(max(0.0, skew**2 - floor**2)),
        scale=float(mean @ aim) / wanted**2,
        noise=tokens / 1000 * spread / length**2,
    )


async def study(spec: TrialSpec, *, settle: int = 4) -> GradientQuality:
    """Estimates of a policy that stands still; the first rounds only settle the critic."""
    trial = Trial(spec)
    learner = trial.learner
    assert isinstance(learner, TabularLearner)
    estimates: list[Table] = []

    def keep(records: Sequence[ActorRecord], tokens: int) -> None:
        estimates.append(learner.gradients(records)[0])

    trial.on_round.append(keep)
    async with ExecutionServices(AdmissionPool(512)) as services:
        points = await trial.run(services)
    _, truth = learner.gradients(())
    spent = points[-1]["tokens"] / points[-1]["round"]
    return gradient_quality(
        estimates[settle:], truth, tokens=spent, task=spec.task, method=spec.method
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    games = sorted(name for name, family in FAMILIES.items() if family.game is not None)
    parser.add_argument("--task", choices=games, default="tabular")
    parser.add_argument("--methods", default="grpo,rloo,vine-ppo,spo-tree,tree-grpo,focus")
    parser.add_argument("--budget", type=int, default=60_000, help="tokens per method")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--tokens-per-prompt", type=int, default=192)
    parser.add_argument("--out", type=Path, help="folder for gradients.json")
    options = parser.parse_args()
    methods = options.methods.split(",")
    if unknown := [name for name in methods if name not in METHODS]:
        parser.error(f"unknown method {', '.join(unknown)}; known: {', '.join(METHODS)}")
    found = []
    print(f"{'method':<16}{'cosine':>14}{'skew':>8}{'bias':>8}{'scale':>9}{'noise/1k':>10}")
    for method in methods:
        spec = TrialSpec(
            task=options.task,
            method=method,
            prompts=options.prompts,
            tokens_per_prompt=options.tokens_per_prompt,
            budget=options.budget,
            evaluations=2,
            frozen=True,
        )
        one = anyio.run(study, spec)
        found.append(asdict(one))
        print(
            f"{method:<16}{one.cosine:>8.3f}±{one.cosine_error:.3f}"
            f"{one.skew:>8.2f}{one.bias:>8.2f}{one.scale:>9.2f}{one.noise:>10.2f}",
            flush=True,
        )
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"gradients-{options.task}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
