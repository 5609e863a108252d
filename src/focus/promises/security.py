"""S: paths, loading, hostile servers, secrets, forged turns, execution, supply chain."""

from __future__ import annotations

from focus.promises.base import Promise

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="S1",
        promise="data cannot choose a path",
        target=0,
        unit="escapes, collisions and overwrites",
    ),
    Promise(
        id="S2",
        promise="loading never runs code",
        target=0,
        unit="findings and events",
    ),
    Promise(
        id="S3",
        promise="a hostile server cannot crash or bloat the client",
        target=0,
        unit="crashes, foreign hosts, and replies over 64 MiB past the cap",
    ),
    Promise(
        id="S4",
        promise="secrets stay out of records, logs, errors and reprs",
        target=0,
        unit="canaries found",
    ),
    Promise(
        id="S5",
        promise="data cannot forge a turn",
        target=0,
        unit="forged control ids",
    ),
    Promise(
        id="S6",
        promise="model output is never executed by FOCUS itself",
        target=0,
        unit="exec, process, socket and write events",
    ),
    Promise(
        id="S7",
        promise="the supply chain is small and pinned, and importing touches no network",
        target=0,
        unit="unpinned packages and import-time sockets",
        in_quick=False,
    ),
)
