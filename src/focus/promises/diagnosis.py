"""D1: what an error tells."""

from __future__ import annotations

from focus.promises.base import Limits, Promise
from focus.promises.diagnosing import errors_tell

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="D1",
        promise="a failure can be diagnosed from its error alone",
        target=0,
        unit="fault kinds whose cause cannot be told",
        measure=errors_tell,
        in_quick=False,
        limits=Limits(quick_s=180.0, full_s=900.0),
    ),
)
