"""The page of promises shows the stored figures, every row, and how each is measured."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from focus.promises.base import Measured, Promise, Row
from focus.promises.rows import ROWS
from focus.promises.stored import stored_rows

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "promises.md").read_text(encoding="utf-8")


def script() -> ModuleType:
    path = DOCS / "figures" / "promises_table.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_the_stored_one() -> None:
    """When figures were stored anew: python docs/figures/promises_table.py."""
    assert script().rewritten(PAGE, stored_rows()) == PAGE


def test_every_row_says_how_it_is_measured() -> None:
    section = PAGE.partition("## How the rows are measured")[2].partition("###")[0]
    named: set[str] = set()
    for cell in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[1:]:
        for part in cell.split(", "):
            first, _, last = part.partition(" to ")
            numbers = range(int(first[1]), int((last or first)[1]) + 1)
            named |= {f"{first[0]}{number}" for number in numbers}
    assert named == {row.id for row in ROWS}


def test_a_figure_a_missed_target_and_no_figure_look_different() -> None:
    promise = Promise(id="F9", promise="no record is lost", target=0, unit="records")
    line = script().line
    kept = Row(promise=promise, measured=Measured(0, 10_000), measured_on="2026-11-30, full, x")
    assert line(kept) == (
        "| F9 | no record is lost | 0 records | ≤ 0 | 10k | 0.0003 | 2026-11-30, full |\n"
    )
    missed = Row(promise=promise, measured=Measured(2, 10), measured_on="2026-11-30, full, x")
    assert "| 2 records **(missed)** |" in line(missed)
    assert "not promised" in line(Row(promise=promise))
