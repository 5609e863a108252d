"""Tables of the pages are recomputed from the code that they describe."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from focus.records import invariants, load_stored_tree
from focus.search import BetaBernoulli
from focus.search.allocators.calibration import GAINS
from focus.tree import Stats

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the rows of the table whose header row begins with `heading`."""
    text = (DOCS / page).read_text(encoding="utf-8")
    start = text.index(f"| {heading} |")
    table = text[start:].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


@pytest.mark.parametrize("row", rows("concepts/search.md", "V"), ids=" ".join)
def test_gains_of_value_refinement(row: list[str]) -> None:
    value, count, mean, pending = row[:4]
    seen = Stats(int(count), 0.0 if mean == "–" else float(mean))
    posterior = BetaBernoulli().posterior(float(value), seen, prior_strength=1.0)
    gains = [
        gain(posterior, count=seen.count, pending=int(pending), prior_strength=1.0)
        for gain in GAINS.values()
    ]
    numbers = [posterior.mean, posterior.prior_error, posterior.return_variance, *gains]
    assert row[4:] == [f"{number:.4g}" for number in numbers]


def test_every_invariant_is_listed() -> None:
    listed = [row[0] for row in rows("concepts/exact-tokens.md", "id")]
    checked = re.findall(r"^ {4}([IC]\d+) ", invariants.__doc__, re.MULTILINE)
    assert sorted(listed) == sorted([*checked, "I9"])


def script(name: str) -> ModuleType:
    """A script of docs/figures as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "figures" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictured_tree_is_the_stored_one() -> None:
    """When `focus show` changes: python docs/figures/demo_tree.py --draw."""
    figure = script("demo_tree")
    drawn = figure.draw(load_stored_tree(figure.STORED))
    assert figure.DRAWN.read_text(encoding="utf-8") == drawn
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", drawn)


def test_the_table_of_runs_is_the_stored_one() -> None:
    figure = script("demo_table")
    readme = figure.README.read_text(encoding="utf-8")
    assert figure.rewritten(readme, figure.stored()) == readme


def test_a_run_is_one_row() -> None:
    summary = {
        "accuracy_before": 0.5,
        "accuracy_after": 0.625,
        "accuracy_ci95": {"before": [0.45, 0.55], "after": [0.575, 0.675]},
        "critic_brier": 0.125,
        "constant_brier": 0.25,
        "critic_gate_round": 2,
        "eval_problems": 400,
        "seed": 0,
        "tokens_generated": 12345,
        "train_wall_s": 240.0,
    }
    row = script("demo_table").row(summary)
    assert row == (
        "| 0 | 0.500 | 0.625 (0.575 to 0.675) | 400 | 12,345 | 0.125 / 0.250 | 3 | 4 min |\n"
    )
