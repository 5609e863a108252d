"""D1: what an error tells."""

from __future__ import annotations

from focus.promises.base import Promise

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="D1",
        promise="a failure can be diagnosed from its error alone",
        target=0,
        unit="fault kinds whose cause cannot be told",
        in_quick=False,
    ),
)
