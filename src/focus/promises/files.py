"""F: records on disk under kills, failing disks, many writers and any text."""

from __future__ import annotations

from focus.promises.base import Promise
from focus.promises.disks import failing_disk
from focus.promises.kills import every_byte
from focus.promises.round_trips import old_files, round_trips
from focus.promises.writers import many_writers

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="F1",
        promise="a kill at any byte leaves a reader whole accepted records, all of them",
        target=0,
        unit="records damaged, fused or missing",
        measure=every_byte,
    ),
    Promise(
        id="F2",
        promise="a failing disk loses nothing silently",
        target=0,
        unit="silent losses",
        measure=failing_disk,
    ),
    Promise(
        id="F3",
        promise="many processes may write one directory",
        target=0,
        unit="records bad, missing or doubled",
        measure=many_writers,
    ),
    Promise(
        id="F4",
        promise="any text comes back equal, and what cannot is refused",
        target=0,
        unit="mismatches",
        measure=round_trips,
    ),
    Promise(
        id="F5",
        promise="released formats stay readable, unknown ones are refused by name",
        target=0,
        unit="files misread",
        measure=old_files,
    ),
)
