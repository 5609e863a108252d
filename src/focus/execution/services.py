"""What collectors share: permits for network calls, and refreshes of a policy."""

from __future__ import annotations

from focus._closing import Closing
from focus.execution.admission import AdmissionPool
from focus.execution.refreshes import Refreshes

__all__ = ("ExecutionServices",)


class ExecutionServices(Closing):
    """Shared by many collectors of one process; closed by whoever made it.

    Built before or inside an event loop. Leaving it open at process exit loses nothing.

    >>> services = ExecutionServices(pool=AdmissionPool(capacity=8))
    >>> services.pool.statistics.capacity
    8
    """

    def __init__(self, pool: AdmissionPool | None = None) -> None:
        self.pool: AdmissionPool = pool or AdmissionPool()
        self.refreshes: Refreshes = Refreshes()

    async def aclose(self) -> None:
        """Refuse further calls."""
        self.pool.close()
