"""`focus promises`: lists without measuring, measures what is named, says what broke."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from focus.cli.promises import verdict
from focus.promises.base import Measured, Promise, Row
from focus.promises.rows import ROWS

from .conftest import Invoke

KEYS = ["id", "promise", "figure", "target", "better", "trials", "bound", "met", "measured_on"]


def test_without_report_the_stored_figures_are_listed(invoke: Invoke, tmp_path: Path) -> None:
    page = invoke("promises", "--plain", "--json", str(tmp_path / "new" / "p.json")).stdout
    lines = page.splitlines()
    assert [line.split()[0] for line in lines if line[:2] in {row.id for row in ROWS}] == [
        row.id for row in ROWS
    ]
    assert "focus promises --report --quick" in lines[-1]
    rows = json.loads((tmp_path / "new" / "p.json").read_text())["rows"]
    assert [row["id"] for row in rows] == [row.id for row in ROWS]
    assert all(list(row) == KEYS for row in rows)
    for row in rows:
        assert row["better"] in ("lower", "higher")
        assert (row["met"] is None) == (row["figure"] is None)
        assert (row["met"] is None) == ("not promised" in row["promise"])


def test_rows_are_measured_and_written(invoke: Invoke) -> None:
    done = invoke("promises", "--report", "--quick", "--only", "F5,S1", "--json", "-")
    report = json.loads(done.stdout)
    assert [(row["id"], row["met"]) for row in report["rows"]] == [("F5", True), ("S1", True)]
    assert report["rows"][1]["bound"] == pytest.approx(3 / 1_000)
    assert report["rows"][0]["measured_on"].split(", ")[1] == "quick"
    assert report["details"]["F5"]["misread"] == []
    assert "F5" in done.stderr


def test_a_row_that_does_not_exist_is_named(invoke: Invoke) -> None:
    done = invoke("promises", "--only", "Z9", code=1)
    assert "no promise is called Z9" in done.stderr


def test_only_full_figures_are_stored(invoke: Invoke) -> None:
    done = invoke("promises", "--report", "--only", "F5", "--store", code=2)
    assert "give --full too" in done.stderr


def test_the_verdict_names_what_broke() -> None:
    promise = Promise(id="F9", promise="no record is lost", target=0, unit="records")
    kept = Row(promise=promise, measured=Measured(0, 10))
    missed = Row(promise=promise, measured=Measured(2, 10))
    broken = Row(promise=promise, error="StoreError: no disk")
    assert verdict([kept, Row(promise=promise)]) == ["1 kept, 0 broken, 1 not promised"]
    assert verdict([kept, missed, broken]) == [
        "1 kept, 2 broken, 0 not promised",
        "F9: 2 records; at most 0 was promised",
        "F9: StoreError: no disk",
    ]
