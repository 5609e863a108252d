"""Every fault of the chaos server."""

from __future__ import annotations

from focus.errors import ConfigError
from focus.testing.chaos.bodies import BODY_FAULTS
from focus.testing.chaos.contents import CONTENT_FAULTS
from focus.testing.chaos.faults import Fault
from focus.testing.chaos.router import ROUTER_FAULTS
from focus.testing.chaos.statuses import STATUS_FAULTS
from focus.testing.chaos.transport import TRANSPORT_FAULTS

__all__ = ("FAULTS", "fault_named")

FAULTS: tuple[Fault, ...] = (
    *TRANSPORT_FAULTS,
    *STATUS_FAULTS,
    *BODY_FAULTS,
    *CONTENT_FAULTS,
    *ROUTER_FAULTS,
)


def fault_named(name: str) -> Fault:
    """The fault of that name.

    Raises:
        ConfigError: there is none.

    >>> fault_named("gzip_bomb").kind.value
    'corrupt'
    """
    for fault in FAULTS:
        if fault.name == name:
            return fault
    raise ConfigError(f"no fault is called {name!r}; there are {', '.join(f.name for f in FAULTS)}")
