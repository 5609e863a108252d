"""E: evaluation beside training, and resuming."""

from __future__ import annotations

from focus.promises.base import Promise

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="E1",
        promise="evaluation changes no training payload and writes no critic record",
        target=0,
        unit="payloads changed, and records written",
    ),
    Promise(
        id="E2",
        promise="a resumed run skips nothing and accepts nothing twice",
        target=0,
        unit="states with a skipped or doubled prompt",
    ),
)
