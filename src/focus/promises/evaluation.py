"""E: evaluation beside training, resuming, and environments that are branched."""

from __future__ import annotations

from focus.promises.base import Limits, Promise
from focus.promises.branching import branches_apart
from focus.promises.resumption import resumed
from focus.promises.separation import separated

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="E1",
        promise="evaluation changes no training payload and writes no critic record",
        target=0,
        unit="payloads changed, and records written",
        measure=separated,
        limits=Limits(quick_s=300.0),
    ),
    Promise(
        id="E2",
        promise="a resumed run skips nothing and accepts nothing twice",
        target=0,
        unit="states with a skipped or doubled prompt",
        measure=resumed,
        limits=Limits(quick_s=600.0, full_s=7_200.0),
    ),
    Promise(
        id="E3",
        promise="branches of an environment stay apart and leave nothing behind",
        target=0,
        unit="broken laws of forking",
        measure=branches_apart,
        limits=Limits(quick_s=300.0, full_s=7_200.0),
    ),
)
