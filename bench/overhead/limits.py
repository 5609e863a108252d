"""P9, P10: how close real trees come to the physical limits (docs/concepts/search.md).

python -m bench.overhead.limits --prompts 32 --json FILE    # these alone
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from bench.overhead.figure import Figure, write_figures

from focus import (
    Collection,
    Critic,
    Edges,
    ExecutionServices,
    FixedWidth,
    Phase,
    RefinedTd,
    Search,
    TransformersPolicy,
)
from focus.collect import Ledger, total
from focus.execution import AdmissionPool
from focus.records.records import CriticContext
from focus.tasks.registry import load_task
from focus.training.making import make_collector
from focus.tree import Identity

__all__ = ("limit_figures",)

_BUDGET = 640
_CHUNK = 12
"""Tokens of a segment of the demo task."""
_FIXED = Phase(FixedWidth((4, 4, 4)), attempts=4 + 16 + 64, extent=Edges(1), siblings=4)


@dataclass(frozen=True)
class _Case:
    """Trees of one search and what they cost."""

    found: Sequence[Collection]

    @property
    def books(self) -> Ledger:
        return total([one.ledger for one in self.found])

    def share(self, name: str, what: str, goal: float) -> Figure:
        value = self.books.ratios()[name]
        assert value is not None
        return Figure(
            id="P9",
            what=f"{name}: {what}",
            value=value,
            unit="share",
            goal=goal,
            floor=1.0,
            better="higher",
        )

    @property
    def budget_error(self) -> float:
        """Mean of |spent − budget| / budget."""
        spent = [one.ledger.tokens_generated for one in self.found]
        return sum(abs(tokens - _BUDGET) for tokens in spent) / len(spent) / _BUDGET


def limit_figures(*, prompts: int) -> Iterator[Figure]:
    """Trees of the shipped model on its own task, with a critic that is asked."""
    cases = {
        "default": Search.two_phase(tokens=_BUDGET),
        "cascade": Search.cascade(tokens=_BUDGET),
        "siblings": Search.two_phase(tokens=_BUDGET, siblings=4, concurrency=8),
        "fixed": Search([_FIXED], concurrency=8),
        "flat": Search.flat(8, concurrency=8),
        "hard": Search.two_phase(tokens=_BUDGET, cap="hard"),
    }
    found = {name: _Case(anyio.run(_collect, search, prompts)) for name, search in cases.items()}
    default = found["default"]
    yield default.share("eta_gen", "generated tokens that are trained or give a value", 0.98)
    yield default.share("eta_prefill", "prefill any collector needs, of what was computed", 0.9)
    yield default.share("eta_critic", "predictions needed, of those made", 0.95)
    needed = "checkpoints continued, of calls of the policy"
    yield found["fixed"].share("eta_req", f"{needed}; fixed widths of 4", 0.9)
    yield found["flat"].share("eta_req", f"{needed}; 8 rollouts", 0.9)
    yield found["cascade"].share("eta_req", f"{needed}; adaptive, in lockstep", 0.9)
    yield found["siblings"].share("eta_req", f"{needed}; adaptive, 4 siblings at once", 0.9)
    yield default.share("eta_req", f"{needed}; adaptive, one branch at a time (two-phase)", 0.9)
    yield Figure(
        id="P10",
        what="budget error of a mean cap, two-phase: mean |spent - budget| / budget",
        value=default.budget_error,
        unit="share",
        goal=0.05,
        floor=0.0,
    )
    yield Figure(
        id="P10",
        what="budget error in lockstep: mean |spent - budget| / budget",
        value=found["cascade"].budget_error,
        unit="share",
        goal=0.05,
        floor=0.0,
    )
    hard = found["hard"].found
    yield Figure(
        id="P10",
        what="budget error of a hard cap: most |spent - budget|, in segments per active request",
        value=max(
            abs(one.ledger.tokens_generated - _BUDGET) / _CHUNK / cases["hard"].concurrency
            for one in hard
        ),
        unit="segments",
        goal=1.0,
        floor=0.0,
    )


async def _collect(search: Search, prompts: int) -> list[Collection]:
    task = load_task("demo")
    found: list[Collection] = []
    async with (
        TransformersPolicy("builtin", device="cpu", max_batch=64) as policy,
        ExecutionServices(AdmissionPool(64)) as services,
        anyio.create_task_group() as group,
    ):

        async def one(problem: object) -> None:
            collector = make_collector(
                policy,
                task,
                problem,
                search=search,
                critic=Critic.function(_by_digest, version="digest/1"),
                credit=RefinedTd(),
                packing="path",
                seed=1,
                services=services,
            )
            async with collector:
                found.append(await collector.collect(problem, identity=Identity(run="bench")))

        for problem in task.problems("train", prompts):
            group.start_soon(one, problem)
    return found


async def _by_digest(contexts: Sequence[CriticContext]) -> list[float]:
    """Values without sense, the same for the same context."""
    return [
        0.2 + 0.6 * hashlib.sha256(context.text.encode()).digest()[0] / 255 for context in contexts
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    figures = list(limit_figures(prompts=options.prompts))
    for figure in figures:
        print(f"{figure.id} {figure.what}: {figure.value:.3g}")
    command = f"python -m bench.overhead.limits --prompts {options.prompts} --json figures.json"
    what = f"Limits of trees alone, {options.prompts} prompts"
    write_figures(options.json, figures, what=what, command=command)


if __name__ == "__main__":
    main()
