"""A1, A4, A6: what is exported, sample by sample."""

from __future__ import annotations

from focus.promises.base import Promise

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="A1",
        promise="every exported sample passes the invariants",
        target=0,
        unit="violations",
    ),
    Promise(
        id="A4",
        promise="each sampled id is trained once or withheld for a stated reason",
        target=0,
        unit="ids",
    ),
    Promise(
        id="A6",
        promise="a tree holds one policy version",
        target=0,
        unit="mixed trees exported",
    ),
)
