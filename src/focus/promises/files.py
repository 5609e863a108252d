"""F: records on disk under kills, failing disks, many writers and any text."""

from __future__ import annotations

from focus.promises.base import Promise

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="F1",
        promise="a kill at any byte leaves a reader whole accepted records, all of them",
        target=0,
        unit="records damaged, fused or missing",
    ),
    Promise(
        id="F2",
        promise="a failing disk loses nothing silently",
        target=0,
        unit="silent losses",
    ),
    Promise(
        id="F3",
        promise="many processes may write one directory",
        target=0,
        unit="records bad, missing or doubled",
    ),
    Promise(
        id="F4",
        promise="any text comes back equal, and what cannot is refused",
        target=0,
        unit="mismatches",
    ),
    Promise(
        id="F5",
        promise="released formats stay readable, unknown ones are refused by name",
        target=0,
        unit="files misread",
    ),
)
