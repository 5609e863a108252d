"""Faults that a service shows on demand, by route and turn."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ("Fault", "FaultKind", "FaultPlan")


class FaultKind(StrEnum):
    """What goes wrong with one request."""

    BUSY = "busy"
    """Status 429; the request was not taken."""
    UNAVAILABLE = "unavailable"
    """Status 503; the request was not taken."""
    REPLY_LOST = "reply_lost"
    """Status 502, although the request was taken; it is sent again under its number."""
    FAILED = "failed"
    """The result says that the request failed; nothing was done."""
    GONE = "gone"
    """The work is done and its result is lost: status 410."""
    CRASH = "crash"
    """An exception in the middle of a training step: half of it is done."""
    RESTART = "restart"
    """The process starts anew before the request: only saved states are left."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, once.

    Attributes:
        route: last part of the path, such as ``"optim_step"``.
        kind: what happens.
        skip: requests of that route that pass before it.
    """

    route: str
    kind: FaultKind
    skip: int = 0


class FaultPlan:
    """Faults still to come; asked from the service's thread, filled from a test's."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._lock = threading.Lock()
        self._left = list(faults)
        self.shown: list[FaultKind] = []

    def add(self, fault: Fault) -> None:
        """Show this fault after `fault.skip` more requests of its route."""
        with self._lock:
            self._left.append(fault)

    def next(self, route: str) -> FaultKind | None:
        """The fault of the request that has just come in, if any."""
        with self._lock:
            for place, fault in enumerate(self._left):
                if fault.route != route:
                    continue
                if not fault.skip:
                    self.shown.append(self._left.pop(place).kind)
                    return fault.kind
                self._left[place] = dataclasses.replace(fault, skip=fault.skip - 1)
        return None
