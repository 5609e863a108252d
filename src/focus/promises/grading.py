"""V: verdicts, their bounds and their quality."""

from __future__ import annotations

from focus.promises.base import Promise

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="V1",
        promise="grading works in the process where training grades",
        target=0,
        unit="wrong verdicts and silent zeros",
    ),
    Promise(
        id="V2",
        promise="hostile answers are graded in bounded time and memory",
        target=1.0,
        unit="s past the limit, worst",
    ),
    Promise(
        id="V3",
        promise="grading is right in the families declared safe",
        target=0,
        unit="wrong verdicts in safe families",
        in_quick=False,
    ),
)
