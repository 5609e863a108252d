"""C1: the admission pool."""

from __future__ import annotations

from focus.promises.base import Promise
from focus.promises.storms import permits

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="C1",
        promise="permits are never exceeded and never lost",
        target=0,
        unit="permits exceeded, lost or deadlocked",
        measure=permits,
    ),
)
