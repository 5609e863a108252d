"""A1, A4, A6: what is exported, sample by sample."""

from __future__ import annotations

from focus.promises.base import Limits, Promise
from focus.promises.delivery import trained_once
from focus.promises.sampled import samples_pass
from focus.promises.versions import never_mixed

__all__ = ("ROWS",)

_LONG = Limits(quick_s=180.0, full_s=3_600.0)

ROWS = (
    Promise(
        id="A1",
        promise="every exported sample passes the invariants",
        target=0,
        unit="violations",
        measure=samples_pass,
        limits=_LONG,
    ),
    Promise(
        id="A4",
        promise="each sampled id is trained once or withheld for a stated reason",
        target=0,
        unit="ids",
        measure=trained_once,
        limits=_LONG,
    ),
    Promise(
        id="A6",
        promise="a tree holds one policy version",
        target=0,
        unit="mixed trees exported",
        measure=never_mixed,
        limits=_LONG,
    ),
)
