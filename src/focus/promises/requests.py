"""R: expansions under faults of servers, deadlines, cancellation and signals."""

from __future__ import annotations

from focus.promises.base import Limits, Promise
from focus.promises.cancelling import client_works_on, nothing_left
from focus.promises.delivery import honest_faults, nothing_corrupted, nothing_lost, retried
from focus.promises.first_error import first_error_wins
from focus.promises.hangs import nothing_hangs
from focus.promises.signals import signals_end_it

__all__ = ("ROWS",)

_LONG = Limits(quick_s=180.0, full_s=3_600.0)

ROWS = (
    Promise(
        id="R1",
        promise="no expansion is lost, doubled or unaccounted for under server chaos",
        target=0,
        unit="expansions lost, doubled or unaccounted for",
        measure=nothing_lost,
        limits=_LONG,
    ),
    Promise(
        id="R2",
        promise="no corrupted sample is exported under server chaos",
        target=0,
        unit="corrupted samples, and detectable faults not refused",
        measure=nothing_corrupted,
        limits=_LONG,
    ),
    Promise(
        id="R3",
        promise="trees complete when 30 % of all tries meet a fault that passes (10 tries each)",
        target=0.999,
        better="higher",
        unit="share of trees complete",
        measure=honest_faults,
        limits=_LONG,
    ),
    Promise(
        id="R4",
        promise="a fault that will repeat is not retried",
        target=0,
        unit="fault kinds with too many attempts",
        measure=retried,
        limits=_LONG,
    ),
    Promise(
        id="R5",
        promise="nothing hangs: every wait ends at its deadline",
        target=1.0,
        unit="s past the deadline, worst",
        measure=nothing_hangs,
        limits=_LONG,
    ),
    Promise(
        id="R6",
        promise="cancelling at any await leaves nothing behind",
        target=0,
        unit="tasks, sockets, permits, threads, children left",
        measure=nothing_left,
        limits=_LONG,
    ),
    Promise(
        id="R7",
        promise="a shared HTTP client works on after every cancel point",
        target=0,
        unit="requests that fail",
        measure=client_works_on,
        limits=_LONG,
    ),
    Promise(
        id="R8",
        promise="the first error wins, and is the cause of what is raised",
        target=0,
        unit="places where it does not",
        measure=first_error_wins,
        limits=_LONG,
    ),
    Promise(
        id="R9",
        promise="a signal ends the process soon and leaves whole lines and no orphan",
        target=5.0,
        unit="s until exit, worst",
        measure=signals_end_it,
        limits=_LONG,
    ),
)
