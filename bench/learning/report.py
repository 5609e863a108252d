"""From curves to what they say: per method the best setting, then intervals over fresh seeds."""

from __future__ import annotations

import html
import io
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

__all__ = ("MethodSummary", "area", "best_rates", "read_curves", "summaries", "write_report")

Curve = dict[str, Any]
"""``spec`` and ``points`` of one trial."""

SHARE = 0.9
"""Of the best method's final accuracy: the threshold that tokens are counted to."""


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """One method on one task, over its seeds.

    Attributes:
        method, seeds, learning_rate, prompts, minibatches: what was run.
        area: mean accuracy along the tokens, mean over seeds, with its 95 % interval.
        final: accuracy at the end, likewise.
        tokens_to_threshold: median over seeds; None where most never got there.
        by_seed: area of each seed.
    """

    method: str
    seeds: int
    learning_rate: float
    prompts: int
    minibatches: int
    area: float
    area_ci95: tuple[float, float]
    final: float
    final_ci95: tuple[float, float]
    tokens_to_threshold: float | None
    by_seed: tuple[float, ...]


def read_curves(folder: Path) -> list[Curve]:
    """Every finished trial below a folder, in the order of the names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.s*.json"))]


def area(curve: Curve, *, by: str = "tokens") -> float:
    """Mean accuracy over what was spent, by the trapezoid rule.

    >>> points = [{"tokens": 0, "accuracy": 0.2}, {"tokens": 100, "accuracy": 0.6}]
    >>> area({"points": points})
    0.4
    """
    points = curve["points"]
    spent = points[-1][by] - points[0][by]
    total = sum(
        (after[by] - before[by]) * (after["accuracy"] + before["accuracy"]) / 2
        for before, after in itertools.pairwise(points)
    )
    return total / spent


def tokens_to(curve: Curve, threshold: float) -> float | None:
    """Tokens at which the curve first reaches the threshold, interpolated.

    >>> points = [{"tokens": 0, "accuracy": 0.2}, {"tokens": 100, "accuracy": 0.6}]
    >>> tokens_to({"points": points}, 0.5), tokens_to({"points": points}, 0.7)
    (75.0, None)
    """
    points = curve["points"]
    if points[0]["accuracy"] >= threshold:
        return 0.0
    for before, after in itertools.pairwise(points):
        if after["accuracy"] >= threshold:
            rise = after["accuracy"] - before["accuracy"]
            share = round((threshold - before["accuracy"]) / rise, 9)
            return float(before["tokens"] + share * (after["tokens"] - before["tokens"]))
    return None


def best_rates(curves: Sequence[Curve]) -> dict[str, dict[str, Any]]:
    """Per method the spec with the largest area among its tuning trials."""
    best: dict[str, Curve] = {}
    for curve in curves:
        method = curve["spec"]["method"]
        if method not in best or area(curve) > area(best[method]):
            best[method] = curve
    return {method: curve["spec"] for method, curve in best.items()}


def summaries(curves: Sequence[Curve]) -> list[MethodSummary]:
    """One per method, best area first; the trials of a method share all but their seed."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve["spec"]["method"], []).append(curve)
    finals = {m: mean(c["points"][-1]["accuracy"] for c in group) for m, group in groups.items()}
    threshold = SHARE * max(finals.values())
    found = [_summary(method, group, threshold) for method, group in groups.items()]
    return sorted(found, key=lambda summary: -summary.area)


def _summary(method: str, group: Sequence[Curve], threshold: float) -> MethodSummary:
    areas = [area(curve) for curve in group]
    finals = [curve["points"][-1]["accuracy"] for curve in group]
    reached = sorted(
        tokens if (tokens := tokens_to(curve, threshold)) is not None else float("inf")
        for curve in group
    )
    median = reached[(len(reached) - 1) // 2]
    spec = group[0]["spec"]
    return MethodSummary(
        method=method,
        seeds=len(group),
        learning_rate=spec["learning_rate"],
        prompts=spec["prompts"],
        minibatches=spec["minibatches"],
        area=mean(areas),
        area_ci95=_interval(areas),
        final=mean(finals),
        final_ci95=_interval(finals),
        tokens_to_threshold=None if median == float("inf") else median,
        by_seed=tuple(areas),
    )


def _interval(values: Sequence[float], *, draws: int = 2000) -> tuple[float, float]:
    """Percentile bootstrap over seeds; with one seed, the value twice."""
    rng = random.Random(0)
    means = sorted(mean(rng.choices(values, k=len(values))) for _ in range(draws))
    return means[round(0.025 * draws)], means[round(0.975 * draws) - 1]


def write_report(curves: Sequence[Curve], folder: Path, *, facts: dict[str, Any]) -> None:
    """``report.json`` and ``report.html`` in the folder."""
    tasks = sorted({curve["spec"]["task"] for curve in curves})
    by_task = {
        task: summaries([curve for curve in curves if curve["spec"]["task"] == task])
        for task in tasks
    }
    listed = {task: [asdict(summary) for summary in found] for task, found in by_task.items()}
    (folder / "report.json").write_text(json.dumps({**facts, "tasks": listed}, indent=1))
    parts = [
        _section(task, found, [c for c in curves if c["spec"]["task"] == task])
        for task, found in by_task.items()
    ]
    noted = html.escape(", ".join(f"{name}: {value}" for name, value in facts.items()))
    page = _PAGE.format(facts=noted, sections="\n".join(parts))
    (folder / "report.html").write_text(page, encoding="utf-8")


def _section(task: str, found: Sequence[MethodSummary], curves: Sequence[Curve]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(s.method)}</td><td>{s.seeds}</td><td>{s.learning_rate:g}</td>"
        f"<td>{s.prompts} / {s.minibatches}</td>"
        f"<td>{s.area:.3f} ({s.area_ci95[0]:.3f} to {s.area_ci95[1]:.3f})</td>"
        f"<td>{s.final:.3f} ({s.final_ci95[0]:.3f} to {s.final_ci95[1]:.3f})</td>"
        f"<td>{'-' if s.tokens_to_threshold is None else f'{s.tokens_to_threshold:,.0f}'}</td></tr>"
        for s in found
    )
    plots = "".join(_plot(curves, by) for by in ("tokens", "prefill", "wall_s"))
    return f"<h2>{html.escape(task)}</h2><table>{_HEAD}{rows}</table>{plots}"


def _plot(curves: Sequence[Curve], by: str) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    methods = sorted({curve["spec"]["method"] for curve in curves})
    for index, method in enumerate(methods):
        for number, curve in enumerate(c for c in curves if c["spec"]["method"] == method):
            points = curve["points"]
            axes.plot(
                [point["tokens"] + point[by] * (by == "prefill") for point in points]
                if by != "wall_s"
                else [point[by] for point in points],
                [point["accuracy"] for point in points],
                color=f"C{index % 10}",
                alpha=0.7,
                label=method if number == 0 else None,
            )
    axes.set_xlabel(_AXES[by])
    axes.set_ylabel("held-out accuracy")
    axes.legend(fontsize=8)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


_AXES = {
    "tokens": "generated tokens",
    "prefill": "generated tokens + computed prefill tokens",
    "wall_s": "seconds, evaluations left out",
}
_HEAD = (
    "<tr><th>method</th><th>seeds</th><th>rate</th><th>prompts / steps</th>"
    "<th>area (95 %)</th><th>final (95 %)</th><th>tokens to threshold</th></tr>"
)
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Learning per token</title>
<style>body{{font:15px sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse}}td,th{{padding:.2rem .7rem;text-align:right;white-space:nowrap}}
td:first-child,th:first-child{{text-align:left}}svg{{max-width:100%;height:auto}}</style>
<h1>Learning per token</h1><p>{facts}</p>
<p>Area: mean accuracy along the generated tokens. Threshold: nine tenths of the best method's
final accuracy. Intervals: bootstrap over seeds.</p>
{sections}
</html>
"""
