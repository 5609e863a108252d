"""A Tinker service on this machine: the real protocol, real training, faults on demand."""

from focus.testing.tinker_service.desk import Done
from focus.testing.tinker_service.faults import Fault, FaultKind
from focus.testing.tinker_service.server import TinkerService

__all__ = ("Done", "Fault", "FaultKind", "TinkerService")
