"""One section of the report per task: a table of methods, and curves against each axis."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.learning.claims import Claim
    from bench.learning.report import MethodSummary

__all__ = ("PAGE", "section")

AXES = {
    "tokens": "generated tokens",
    "priced": "generated tokens + priced prefill and critic compute",
    "wall_s": "seconds, evaluations left out",
}
HEAD = (
    "<tr><th>method</th><th>seeds</th><th>rate</th><th>prompts / steps</th>"
    "<th>area (95 %)</th><th>final (95 %)</th><th>tokens to threshold (95 %)</th>"
    "<th>priced</th><th>seconds</th><th>mixed</th></tr>"
)
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Learning per token</title>
<style>body{{font:15px sans-serif;max-width:90rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse}}td,th{{padding:.2rem .5rem;text-align:right;white-space:nowrap}}
td:first-child,th:first-child{{text-align:left}}svg{{max-width:49%;height:auto}}</style>
<h1>Learning per token</h1><p>{facts}</p>
<p>Area: mean accuracy along the generated tokens. Threshold: nine tenths of the best method's
final accuracy; a dash means that most seeds never got there. Mixed: prompts whose finished
leaves ended differently. Intervals: bootstrap over seeds. Thick lines: means over seeds.</p>
{sections}
</html>
"""


def section(
    task: str,
    found: Sequence[MethodSummary],
    claimed: Sequence[Claim],
    curves: Sequence[dict[str, Any]],
) -> str:
    """Table, claims and plots of one task."""
    plots = "".join(_plot(curves, by) for by in AXES)
    rows, said = "".join(map(_row, found)), "".join(map(_said, claimed))
    return f"<h2>{html.escape(task)}</h2><table>{HEAD}{rows}</table>{said}{plots}"


def _said(claim: Claim) -> str:
    low, high = (_times(end) for end in claim.ratio_ci95)
    return (
        f"<p>Tokens to the threshold, best peer ({html.escape(claim.peer)}) over "
        f"{html.escape(claim.method)}: {_times(claim.ratio)} (95 %: {low} to {high}).</p>"
    )


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _row(summary: MethodSummary) -> str:
    s, spent, span = summary, summary.to_threshold, summary.to_threshold_ci95["tokens"]
    seeds = f"{s.seeds}, {s.cut} cut short" if s.cut else str(s.seeds)
    cells = [
        html.escape(s.method),
        seeds,
        f"{s.learning_rate:g}",
        f"{s.prompts} / {s.minibatches}",
        f"{s.area:.3f} ({s.area_ci95[0]:.3f} to {s.area_ci95[1]:.3f})",
        f"{s.final:.3f} ({s.final_ci95[0]:.3f} to {s.final_ci95[1]:.3f})",
        f"{_number(spent['tokens'])} ({_number(span[0])} to {_number(span[1])})",
        _number(spent["priced"]),
        _number(spent["wall_s"]),
        "-" if s.mixed_ratio is None else f"{s.mixed_ratio:.1%}",
    ]
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _plot(curves: Sequence[dict[str, Any]], by: str) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for index, method in enumerate(sorted({curve["spec"]["method"] for curve in curves})):
        group = [c["points"] for c in curves if c["spec"]["method"] == method]
        color = f"C{index % 10}"
        for points in group:
            axes.plot(*_columns(points, by), color=color, alpha=0.25, linewidth=0.8)
        # Evaluations fall due at the same shares of the budget, so the n-th points belong
        # together whatever each seed had spent by then.
        together = list(zip(*group, strict=False))
        means = [
            {key: sum(p[key] for p in points) / len(points) for key in (by, "accuracy")}
            for points in together
        ]
        axes.plot(*_columns(means, by), color=color, linewidth=2, label=method)
    axes.set_xlabel(AXES[by])
    axes.set_ylabel("held-out accuracy")
    axes.legend(fontsize=8)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


def _columns(points: Sequence[dict[str, Any]], by: str) -> tuple[list[float], list[float]]:
    return [point[by] for point in points], [point["accuracy"] for point in points]
