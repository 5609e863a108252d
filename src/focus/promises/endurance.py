"""C2: long runs."""

from __future__ import annotations

from focus.promises.base import Promise

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="C2",
        promise="long runs with faults do not grow in memory, descriptors, tasks or threads",
        target=1.0,
        unit="MB/h after warm-up",
        in_quick=False,
    ),
)
