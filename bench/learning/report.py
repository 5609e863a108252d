"""From curves to what they say: per method the best setting, then intervals over fresh seeds."""

from __future__ import annotations

import html
import itertools
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bench.learning.books import PRICES, priced
from bench.learning.claims import Claim, claims
from bench.learning.page import PAGE, section
from bench.learning.peers import PEERS

__all__ = ("MethodSummary", "area", "best_rates", "read_curves", "summaries", "write_report")

Curve = dict[str, Any]
"""``spec`` and ``points`` of one trial; ``cut`` where it was stopped before its end."""

AXES = ("tokens", "priced", "wall_s")
"""What learning is counted against."""

SHARE = 0.9
"""Of the best method's final accuracy: the threshold that tokens are counted to."""


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """One method on one task, over its seeds.

    Attributes:
        method, seeds, learning_rate, prompts, minibatches: what was run.
        area: mean accuracy along the tokens, mean over seeds, with its 95 % interval.
        final: accuracy at the end, likewise.
        to_threshold: by axis ("tokens", "priced", "wall_s") what it took to get to the
            threshold: median over seeds, None where most never got there.
        to_threshold_ci95: likewise the interval of the median; None stands for never.
        mixed_ratio: share of prompts whose finished leaves ended differently, all rounds.
        by_seed: area of each seed.
        cut: trials that were stopped before their end; their areas say less.
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
    to_threshold: dict[str, float | None]
    to_threshold_ci95: dict[str, tuple[float | None, float | None]]
    mixed_ratio: float | None
    by_seed: tuple[float, ...]
    cut: int


def read_curves(folder: Path, *, partial: bool = False) -> list[Curve]:
    """Every finished trial of a folder, in the order of the names.

    Args:
        folder: of a sweep.
        partial: also those that were stopped, as far as they got.
    """
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.s*.json"))]
    for path in sorted(folder.glob("*.s*.partial")) if partial else ():
        curve = json.loads(path.read_text())
        if len(curve["points"]) > 1:
            found.append({**curve, "cut": True})
    return found


def with_cost(curve: Curve, prices: Mapping[str, float]) -> Curve:
    """The curve with what each point has cost: sampled tokens, prefill, critic compute."""
    points = [{**point, "priced": priced(point, prices)} for point in curve["points"]]
    return {**curve, "points": points}


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


def tokens_to(curve: Curve, threshold: float, *, by: str = "tokens") -> float | None:
    """What was spent when the curve first reaches the threshold, interpolated.

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
            return float(before[by] + share * (after[by] - before[by]))
    return None


def best_rates(curves: Sequence[Curve]) -> dict[str, dict[str, Any]]:
    """Per method the spec with the largest area among its tuning trials."""
    best: dict[str, Curve] = {}
    for curve in curves:
        method = curve["spec"]["method"]
        if method not in best or area(curve) > area(best[method]):
            best[method] = curve
    return {method: curve["spec"] for method, curve in best.items()}


def summaries(
    curves: Sequence[Curve], *, prices: Mapping[str, float] = PRICES
) -> list[MethodSummary]:
    """One per method, best area first; the trials of a method share all but their seed."""
    curves = [with_cost(curve, prices) for curve in curves]
    groups = _by_method(curves)
    finals = {m: mean(c["points"][-1]["accuracy"] for c in group) for m, group in groups.items()}
    threshold = SHARE * max(finals.values())
    found = [_summary(method, group, threshold) for method, group in groups.items()]
    return sorted(found, key=lambda summary: -summary.area)


def claims_of(curves: Sequence[Curve]) -> list[Claim]:
    """Our methods among the curves of one task, against the best peer among them."""
    threshold = SHARE * max(
        mean(curve["points"][-1]["accuracy"] for curve in group)
        for group in _by_method(curves).values()
    )
    spent = {
        method: [_spent(curve, threshold, "tokens") for curve in group]
        for method, group in _by_method(curves).items()
    }
    return claims(spent, peers=PEERS)


def _by_method(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve["spec"]["method"], []).append(curve)
    return groups


def _summary(method: str, group: Sequence[Curve], threshold: float) -> MethodSummary:
    areas = [area(curve) for curve in group]
    finals = [curve["points"][-1]["accuracy"] for curve in group]
    reached = {axis: [_spent(curve, threshold, axis) for curve in group] for axis in AXES}
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
        to_threshold={axis: _finite(_median(spent)) for axis, spent in reached.items()},
        to_threshold_ci95={
            axis: (_finite(low), _finite(high))
            for axis, (low, high) in (
                (axis, _interval(spent, of=_median)) for axis, spent in reached.items()
            )
        },
        mixed_ratio=_mixed_ratio(group),
        by_seed=tuple(areas),
        cut=sum("cut" in curve for curve in group),
    )


def _spent(curve: Curve, threshold: float, axis: str) -> float:
    spent = tokens_to(curve, threshold, by=axis)
    return math.inf if spent is None else spent


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _median(values: Sequence[float]) -> float:
    """The lower one of an even number: infinite only where most are."""
    return sorted(values)[(len(values) - 1) // 2]


def _mixed_ratio(group: Sequence[Curve]) -> float | None:
    seen = [
        (p["mixed_ratio"], p["prompts"]) for c in group for p in c["points"] if p.get("prompts")
    ]
    total = sum(prompts for _, prompts in seen)
    return sum(ratio * prompts for ratio, prompts in seen) / total if total else None


def _interval(
    values: Sequence[float],
    *,
    of: Callable[[Sequence[float]], float] = mean,
    draws: int = 2000,
) -> tuple[float, float]:
    """Percentile bootstrap over seeds; with one seed, the value twice."""
    rng = random.Random(0)
    found = sorted(of(rng.choices(values, k=len(values))) for _ in range(draws))
    return found[round(0.025 * draws)], found[round(0.975 * draws) - 1]


def write_report(
    curves: Sequence[Curve],
    folder: Path,
    *,
    facts: dict[str, Any],
    prices: Mapping[str, float] = PRICES,
) -> None:
    """``report.json`` and ``report.html`` in the folder."""
    curves = [with_cost(curve, prices) for curve in curves]
    tasks = sorted({curve["spec"]["task"] for curve in curves})
    grouped = {task: [c for c in curves if c["spec"]["task"] == task] for task in tasks}
    by_task = {task: summaries(group, prices=prices) for task, group in grouped.items()}
    claimed = {task: claims_of(group) for task, group in grouped.items()}
    told = {
        **facts,
        "prices": dict(prices),
        "tasks": {task: list(map(asdict, found)) for task, found in by_task.items()},
        "claims": {task: list(map(asdict, found)) for task, found in claimed.items()},
    }
    (folder / "report.json").write_text(json.dumps(told, indent=1))
    parts = [section(task, found, claimed[task], grouped[task]) for task, found in by_task.items()]
    said = {**facts, **{f"price of {name}": price for name, price in prices.items()}}
    noted = html.escape(", ".join(f"{name}: {value}" for name, value in said.items()))
    page = PAGE.format(facts=noted, sections="\n".join(parts))
    (folder / "report.html").write_text(page, encoding="utf-8")
