"""R: expansions under faults of servers, deadlines, cancellation and signals."""

from __future__ import annotations

from focus.promises.base import Promise

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="R1",
        promise="no expansion is lost, doubled or unaccounted for under server chaos",
        target=0,
        unit="expansions lost, doubled or unaccounted for",
    ),
    Promise(
        id="R2",
        promise="no corrupted sample is exported under server chaos",
        target=0,
        unit="corrupted samples, and detectable faults not refused",
    ),
    Promise(
        id="R3",
        promise="trees complete under 30 % transient faults",
        target=0.999,
        better="higher",
        unit="share of trees complete",
    ),
    Promise(
        id="R4",
        promise="a fault that will repeat is not retried",
        target=0,
        unit="fault kinds with too many attempts",
    ),
    Promise(
        id="R5",
        promise="nothing hangs: every wait ends at its deadline",
        target=1.0,
        unit="s past the deadline, worst",
    ),
    Promise(
        id="R6",
        promise="cancelling at any await leaves nothing behind",
        target=0,
        unit="tasks, sockets, permits, threads, children left",
    ),
    Promise(
        id="R7",
        promise="a shared HTTP client works on after every cancel point",
        target=0,
        unit="requests that fail",
    ),
    Promise(
        id="R8",
        promise="the first error wins, and is the cause of what is raised",
        target=0,
        unit="places where it does not",
    ),
    Promise(
        id="R9",
        promise="a signal ends the process soon and leaves whole lines and no orphan",
        target=5.0,
        unit="s until exit, worst",
    ),
)
