"""The tables of docs/reference/benchmarks.md, from the result files of bench/results.

python docs/figures/benchmarks_table.py      # rewrite them
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- tables of benchmarks -->\n", "<!-- end of the tables -->"
HEADER = "| id | what | figure | goal | floor | met |\n|---|---|---|---|---|---|\n"
LEARNING = (
    ": method | seeds | rate x prompts | area | final | tokens to 90 % | mixed |\n"
    "|---|---|---|---|---|---|---|\n"
)
OURS = ("focus-unbiased", "focus")
"""The recipe of the demo preset without its branch, where it was run, else what was the default."""
FEWER = 2.0
"""How many times fewer tokens than the best peer our recipe should need."""

Result = Mapping[str, Any]


def tables(results: Mapping[str, Result]) -> str:
    """Markdown of all results, by the name of their file."""
    figures = {name: found for name, found in results.items() if "figures" in found}
    loops = {name: found for name, found in results.items() if "brier_last" in found}
    learning = {n: found for n, found in results.items() if "tasks" in found or "trials" in found}
    parts = ["\n## Overhead and limits\n"]
    parts += [_source(*item) + _rows(item[1]["figures"]) for item in _newest(figures)]
    parts += ["\n## The closed loop\n"]
    parts += [_source(*item) + _rows(_loop(item[1])) for item in _newest(loops)]
    parts += ["\n## Learning per token\n"]
    parts += [_learning(name, found) for name, found in learning.items()]
    parts += [_source(*item) for item in results.items() if not _is_known(item[1])]
    return "".join(parts)


def _is_known(result: Result) -> bool:
    return not result.keys().isdisjoint({"figures", "brier_last", "tasks", "trials"})


def _newest(results: Mapping[str, Result]) -> Iterator[tuple[str, Result]]:
    """Those of the last day; names begin with the date."""
    last = max(results, default="")[: len("2026-01-01")]
    yield from (item for item in sorted(results.items()) if item[0].startswith(last))


def _source(name: str, result: Result) -> str:
    """Where the figures come from, and how to measure them again."""
    said = [str(result[key]) for key in ("what", "date", "machine") if result.get(key)]
    commands = [result["command"]] if result.get("command") else _commands(result)
    command = "\n\n```bash\n" + "\n".join(commands) + "\n```" if commands else ""
    return f"\n{'; '.join(said)} (`bench/results/{name}`).{command}\n\n"


def _commands(result: Result) -> list[str]:
    """What measures the trials of a sweep again, where its file does not say."""
    specs = [trial["spec"] for trial in result.get("trials", ())]
    return [
        f"focus bench learning --task {task} --methods {_listed(specs, task)} --out results"
        for task in sorted({spec["task"] for spec in specs})
    ]


def _listed(specs: Sequence[Mapping[str, Any]], task: str) -> str:
    return ",".join(sorted({spec["method"] for spec in specs if spec["task"] == task}))


def _rows(figures: Sequence[Mapping[str, Any]]) -> str:
    return HEADER + "".join(map(row, figures))


def row(figure: Mapping[str, Any]) -> str:
    """One figure with its goal.

    >>> print(row({"id": "P3", "what": "credit", "value": 2.5, "unit": "ratio", "goal": 3,
    ...            "floor": 1.0, "better": "lower", "met": True}), end="")
    | P3 | credit | 2.5 | ≤ 3 | 1 | yes |
    """
    sign = "≤" if figure.get("better", "lower") == "lower" else "≥"
    unit = "" if figure["unit"] in ("ratio", "share") else f" {figure['unit']}"
    value, goal = f"{figure['value']:.3g}{unit}", f"{sign} {figure['goal']:.3g}{unit}"
    floor = "–" if figure["floor"] is None else f"{figure['floor']:.3g}{unit}"
    met = "yes" if figure["met"] else "**no**"
    return f"| {figure['id']} | {figure['what']} | {value} | {goal} | {floor} | {met} |\n"


def _figure(id: str, what: str, value: float, goal: float, *, better: str) -> dict[str, Any]:
    met = value <= goal if better == "lower" else value >= goal
    fixed = {"unit": "ratio", "floor": None, "better": better, "met": met}
    return {"id": id, "what": what, "value": value, "goal": goal, **fixed}


def _loop(result: Result) -> list[dict[str, Any]]:
    rounds = f"{result['seeds']} seeds of {result['rounds']} rounds"
    brier = "squared error of the last critic on fresh outcomes, against the best constant's"
    mixed = "held-out problems with both outcomes, against a constant critic, equal tokens"
    return [
        _figure(
            "brier",
            f"{brier}; {rounds}",
            result["brier_last"],
            result["brier_constant"],
            better="lower",
        ),
        _figure(
            "mixed",
            f"{mixed}; {rounds}",
            result["mixed_ratio"],
            result["mixed_ratio_constant"],
            better="higher",
        ),
    ]


def _learning(name: str, result: Result) -> str:
    tasks = result["tasks"] if "tasks" in result else _from_trials(result["trials"])
    goals = [goal for task, found in tasks.items() for goal in _goal(task, found)]
    parts = [_source(name, result), _rows(goals) + "\n" if goals else ""]
    for task, found in tasks.items():
        parts.append(f"| {task}{LEARNING}" + "".join(map(_method, found)) + "\n")
    return "".join(parts)


def _from_trials(trials: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Per task the summary of each method at its best rate and batch, over all their seeds."""
    report = _bench("report")
    whole = [t for t in trials if t["points"][-1]["tokens"] >= t["spec"]["budget"]]
    found: dict[str, list[dict[str, Any]]] = {}
    for task in sorted({trial["spec"]["task"] for trial in whole}):
        best: dict[str, list[dict[str, Any]]] = {}
        for cell in _cells([trial for trial in whole if trial["spec"]["task"] == task]):
            method = cell[0]["spec"]["method"]
            best[method] = max(best.get(method, cell), cell, key=lambda c: _mean_area(report, c))
        chosen = [trial for cell in best.values() for trial in cell]
        found[task] = [asdict(summary) for summary in report.summaries(chosen)]
    return found


def _cells(trials: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Trials that share all but their seed."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        key = json.dumps({**trial["spec"], "seed": None}, sort_keys=True)
        cells.setdefault(key, []).append(trial)
    return list(cells.values())


def _mean_area(report: ModuleType, cell: Sequence[dict[str, Any]]) -> float:
    return sum(map(report.area, cell)) / len(cell)


def _bench(name: str) -> ModuleType:
    """A module of the learning bench, which is part of a checkout and of no package."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module(f"bench.learning.{name}")


def _goal(task: str, found: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """How many times fewer tokens our recipe needs than the best other method.

    Where that is REINFORCE, which has neither groups nor trees nor a critic, once more against
    the best of those that have; no row where none of them gets there.
    """
    needed = {method["method"]: method["to_threshold"]["tokens"] for method in found}
    published = _bench("peers").PEERS
    peers = {name: spent for name, spent in needed.items() if name in published and spent}
    ours = next((needed[name] for name in OURS if name in needed), None)
    best = sorted(peers, key=lambda name: peers[name]) if ours else []
    if best[:1] != ["reinforce"]:
        best = best[:1]
    for who, name in zip(("best peer", "best of groups, trees and critics"), best, strict=False):
        what = f"{task}: tokens of the {who} ({name}) to 90 % of the best end, over FOCUS's"
        yield _figure("tokens", what, peers[name] / ours, FEWER, better="higher")


def _method(found: Mapping[str, Any]) -> str:
    """One method; an interval only where there are seeds to draw from."""
    spent = found["to_threshold"]["tokens"]
    cells = (
        found["method"],
        found["seeds"],
        f"{found['learning_rate']:g} x {found['prompts']}",
        _with_interval(found, "area"),
        _with_interval(found, "final"),
        "never" if spent is None else f"{spent / 1000:.0f}k",
        "–" if found["mixed_ratio"] is None else f"{found['mixed_ratio']:.2f}",
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def _with_interval(found: Mapping[str, Any], name: str) -> str:
    value = f"{found[name]:.3f}"
    if found["seeds"] == 1:
        return value
    low, high = found[f"{name}_ci95"]
    return f"{value} ({low:.3f} to {high:.3f})"


def read_results(folder: Path = RESULTS) -> dict[str, Result]:
    """Every result file, by name."""
    return {
        path.name: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))
    }


def rewritten(page: str, results: Mapping[str, Result]) -> str:
    """The page with its tables replaced."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + tables(results).rstrip("\n") + "\n\n" + END + after


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(rewritten(page, read_results()), encoding="utf-8")


if __name__ == "__main__":
    main()
