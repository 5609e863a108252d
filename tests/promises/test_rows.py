"""The table is complete, and what is stored of it is readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from focus.errors import ConfigError, SchemaError
from focus.promises.base import Measured, Row
from focus.promises.rows import ROWS, chosen
from focus.promises.stored import store, stored_rows

SIZES = {"R": 9, "F": 5, "A": 6, "V": 3, "E": 3, "C": 2, "S": 7, "D": 1}
IDS = [f"{family}{number}" for family, size in SIZES.items() for number in range(1, size + 1)]


def test_every_row_of_the_table_is_there_in_order() -> None:
    assert [row.id for row in ROWS] == IDS


def test_a_row_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="no promise is called Z9; there are R1 R2"):
        chosen(["F1", "Z9"])


def test_the_stored_figures_are_readable() -> None:
    assert [row.promise.id for row in stored_rows()] == IDS


def test_storing_replaces_these_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    first, second = chosen(["F1", "F2"])
    store([Row(promise=first, measured=Measured(0, 10, {"cuts": 10}), measured_on="day 1")], path)
    store(
        [
            Row(promise=first, error="broke", measured_on="day 2"),
            Row(promise=second, measured=Measured(3, 10), measured_on="day 2"),
        ],
        path,
    )
    rows = {row.promise.id: row for row in stored_rows(path)}
    assert (rows["F1"].measured_on, rows["F1"].met) == ("day 1", True)
    assert (rows["F2"].measured_on, rows["F2"].met) == ("day 2", False)
    assert rows["F3"].met is None


def test_a_figure_of_an_unknown_promise_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    row = '{"figure": 0, "trials": 1, "detail": {}, "measured_on": "x"}'
    path.write_text('{"schema": "focus.promises/1", "rows": {"Z9": ' + row + "}}")
    with pytest.raises(SchemaError, match="unknown promises Z9"):
        stored_rows(path)
