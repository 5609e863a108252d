"""All rows, measured or stored, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from focus.promises.base import Promise, Row, Size
from focus.promises.runner import measured_row
from focus.promises.stored import details, stored_rows

__all__ = ("as_json", "broken", "report")


async def report(
    promises: Sequence[Promise],
    size: Size,
    *,
    began: Callable[[Promise, int, int], None] = lambda promise, done, of: None,
    ended: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Measure the rows in order.

    A quick report shows the stored full figure of rows that no quick run can measure.

    Args:
        promises: the rows.
        size: quick or full.
        began: told, again and again, how many trials of a row are done.
        ended: told each row that has its figure.
    """
    stored = {row.promise.id: row for row in stored_rows()}
    rows = []
    for promise in promises:
        if size is Size.QUICK and not promise.in_quick:
            row = stored[promise.id]
        else:
            began(promise, 0, 1)
            row = await measured_row(promise, size, progress=partial(began, promise))
        rows.append(row)
        ended(row)
    return rows


def broken(rows: Sequence[Row]) -> list[Row]:
    """Rows whose promise was not kept."""
    return [row for row in rows if row.met is False]


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The report as a file holds it."""
    return {"rows": [row.to_dict() for row in rows], "details": details(rows)}
