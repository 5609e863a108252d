"""The page of benchmarks shows the stored results, and a missed goal stays in the table."""

from __future__ import annotations

import doctest
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    path = ROOT / "docs" / "figures" / "benchmarks_table.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = script()
FIGURE = {"id": "P3", "what": "credit", "value": 2.5, "unit": "ratio", "goal": 3, "floor": 1.0}


def test_the_tables_are_those_of_the_stored_results():
    """When results were stored anew: python docs/figures/benchmarks_table.py."""
    page = TABLE.PAGE.read_text(encoding="utf-8")
    assert TABLE.rewritten(page, TABLE.read_results()) == page


def test_examples():
    assert doctest.testmod(TABLE).failed == 0


@pytest.mark.parametrize(
    ("better", "met", "line"),
    [
        ("lower", True, "| P3 | credit | 2.5 | ≤ 3 | 1 | yes |\n"),
        ("lower", False, "| P3 | credit | 2.5 | ≤ 3 | 1 | **no** |\n"),
        ("higher", False, "| P3 | credit | 2.5 | ≥ 3 | 1 | **no** |\n"),
    ],
)
def test_a_figure_says_its_goal_and_whether_it_is_met(better: str, met: bool, line: str) -> None:
    assert TABLE.row({**FIGURE, "better": better, "met": met}) == line


def test_the_newest_file_of_figures_counts_and_every_file_is_named(tmp_path: Path) -> None:
    for day, value in (("01", 1.0), ("02", 2.0)):
        figures = [{**FIGURE, "value": value, "met": True}]
        stored = {"what": "overhead", "date": f"2026-01-{day}", "figures": figures}
        (tmp_path / f"2026-01-{day}-overhead.json").write_text(json.dumps(stored))
    (tmp_path / "2026-01-01-other.json").write_text(json.dumps({"what": "something new"}))
    text = TABLE.tables(TABLE.read_results(tmp_path))
    assert "| 2 | ≤ 3 |" in text
    assert "| 1 | ≤ 3 |" not in text
    assert "something new (`bench/results/2026-01-01-other.json`)" in text


def _curve(method: str, rate: float, accuracies: list[float], seed: int) -> dict[str, Any]:
    spec = {"task": "sums", "method": method, "learning_rate": rate, "seed": seed}
    spec |= {"prompts": 8, "minibatches": 2, "budget": 2000}
    cost = {"prefill": 0, "learner": 0, "critic_calls": 0, "wall_s": 0.0, "mixed_ratio": None}
    points = [
        {"tokens": 1000 * step, "accuracy": accuracy, **cost, "wall_s": float(step)}
        for step, accuracy in enumerate(accuracies)
    ]
    return {"spec": spec, "points": points}


def test_a_sweep_shows_each_method_at_its_best_rate_and_the_goal_against_the_best_peer():
    trials = [
        _curve("focus", 0.1, [0.0, 1.0, 1.0], 0),
        _curve("focus", 0.9, [0.0, 0.0, 0.0], 0),
        _curve("grpo", 0.1, [0.0, 0.5, 1.0], 0),
    ]
    text = TABLE.tables({"sweep.json": {"what": "a sweep", "trials": trials}})
    assert "| focus | 1 | 0.1 x 8 |" in text
    assert "0.9 x 8" not in text
    assert "sums: tokens of the best peer (grpo) to 90 % of the best end, over FOCUS's | 2 " in text
    assert "focus bench learning --task sums --methods focus,grpo --out results" in text
