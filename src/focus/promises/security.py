"""S: paths, loading, hostile servers, secrets, forged turns, execution, supply chain."""

from __future__ import annotations

from focus.promises.base import Limits, Promise
from focus.promises.canaries import nothing_leaks
from focus.promises.forged_turns import no_turn_is_forged
from focus.promises.hostile_server import hostile_server
from focus.promises.loading import nothing_runs
from focus.promises.names import chosen_paths
from focus.promises.sealed import never_executed
from focus.promises.supply import supplied

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="S1",
        promise="data cannot choose a path",
        target=0,
        unit="escapes, collisions and overwrites",
        measure=chosen_paths,
    ),
    Promise(
        id="S2",
        promise="loading never runs code",
        target=0,
        unit="findings and events",
        measure=nothing_runs,
    ),
    Promise(
        id="S3",
        promise="a hostile server cannot crash or bloat the client",
        target=0,
        unit="crashes, foreign hosts, and replies over 64 MiB past the cap",
        measure=hostile_server,
        limits=Limits(quick_s=180.0, full_s=3_600.0),
    ),
    Promise(
        id="S4",
        promise="secrets stay out of records, logs, errors and reprs",
        target=0,
        unit="canaries found",
        measure=nothing_leaks,
    ),
    Promise(
        id="S5",
        promise="data cannot forge a turn",
        target=0,
        unit="forged control ids",
        measure=no_turn_is_forged,
    ),
    Promise(
        id="S6",
        promise="model output is never executed by FOCUS itself",
        target=0,
        unit="exec, process, socket and write events",
        measure=never_executed,
    ),
    Promise(
        id="S7",
        promise="the supply chain is small and pinned, and importing touches no network",
        target=0,
        unit="unpinned packages and import-time sockets",
        measure=supplied,
        in_quick=False,
    ),
)
