"""A row of the table, measured as `focus promises --report` does: quick, or full with --full."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from focus.promises.base import Row, Size
from focus.promises.rows import chosen
from focus.promises.runner import measured_row


@pytest.fixture
def kept(pytestconfig: pytest.Config) -> Callable[[str], Row]:
    """Measures a row and asserts that its promise was kept."""
    size = Size.FULL if pytestconfig.getoption("--full") else Size.QUICK

    def measure(row_id: str) -> Row:
        (promise,) = chosen([row_id])
        row = anyio.run(measured_row, promise, size)
        assert row.met, (row.error, row.to_dict(), row.measured)
        return row

    return measure
