"""The promise table: every row, in order."""

from __future__ import annotations

from collections.abc import Iterable

from focus.errors import ConfigError
from focus.promises import (
    credit,
    diagnosis,
    endurance,
    evaluation,
    files,
    grading,
    permits,
    requests,
    samples,
    security,
)
from focus.promises.base import Promise

__all__ = ("ROWS", "chosen")

_FAMILIES = (
    requests,
    files,
    samples,
    credit,
    grading,
    evaluation,
    permits,
    endurance,
    security,
    diagnosis,
)
_ORDER = "RFAVECSD"

ROWS: tuple[Promise, ...] = tuple(
    sorted(
        (row for family in _FAMILIES for row in family.ROWS),
        key=lambda row: (_ORDER.index(row.id[0]), row.id),
    )
)


def chosen(ids: Iterable[str]) -> tuple[Promise, ...]:
    """The rows with these ids, in the table's order.

    Raises:
        ConfigError: there is no such row.

    >>> [row.id for row in chosen(["F1", "R1"])]
    ['R1', 'F1']
    """
    wanted = set(ids)
    unknown = wanted - {row.id for row in ROWS}
    if unknown:
        known = " ".join(row.id for row in ROWS)
        raise ConfigError(f"no promise is called {', '.join(sorted(unknown))}; there are {known}")
    return tuple(row for row in ROWS if row.id in wanted)
