"""V: verdicts, their bounds and their quality."""

from __future__ import annotations

from focus.promises.base import Limits, Promise
from focus.promises.grades import bounded, graded_in_training, quality

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="V1",
        promise="grading works in the process where training grades",
        target=0,
        unit="wrong verdicts and silent zeros",
        measure=graded_in_training,
        limits=Limits(quick_s=180.0),
    ),
    Promise(
        id="V2",
        promise="hostile answers are graded in bounded time and memory",
        target=1.0,
        unit="s past the limit, worst",
        measure=bounded,
        limits=Limits(quick_s=180.0),
    ),
    Promise(
        id="V3",
        promise="grading is right in the families declared safe",
        target=0,
        unit="wrong verdicts in safe families",
        measure=quality,
        limits=Limits(quick_s=180.0),
        in_quick=False,
    ),
)
