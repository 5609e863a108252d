"""docs/concepts/credit.md: its examples run, its table and its figure are regenerated."""

import doctest
import importlib.util
import re
from pathlib import Path

from focus.credit import DirectBranchTd
from focus.testing.trees import build_tree, chain

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "concepts" / "credit.md"


def test_examples_run():
    outcome = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert outcome.attempted > 8
    assert outcome.failed == 0


def passed_on(strength: float, length: int) -> float:
    """Per cent of outcome − V that arrives at the root of an unbranched path."""
    tree = build_tree(chain([0.0] * length, outcome=1.0))
    return 100 * DirectBranchTd(prior_strength=strength).estimate(tree).values[0]


def test_table_of_unbranched_edges():
    rows = re.findall(r"^\| ([\d.]+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [float(strength) for strength, _ in rows] == [0.25, 0.5, 1, 2, 4]
    for strength, cells in rows:
        for length, cell in zip((1, 2, 4, 8, 16), cells.split(" | "), strict=True):
            assert cell == f"{passed_on(float(strength), length):.3g}"


def test_figure_is_what_its_script_draws():
    script = DOCS / "figures" / "credit_bias.py"
    spec = importlib.util.spec_from_file_location("credit_bias", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert script.with_suffix(".svg").read_text(encoding="utf-8") == module.figure()
