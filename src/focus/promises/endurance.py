"""C2: long runs."""

from __future__ import annotations

from focus.promises.base import Limits, Promise
from focus.promises.soak import no_growth

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="C2",
        promise="long runs with faults do not grow in memory, descriptors, tasks or threads",
        target=1.0,
        unit="MB/h after warm-up",
        measure=no_growth,
        in_quick=False,
        limits=Limits(quick_s=600.0, full_s=1_200.0),
    ),
)
