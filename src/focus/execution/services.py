"""What collectors share: permits for network calls, and refreshes of a policy."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from focus.execution.admission import AdmissionPool
from focus.execution.refreshes import Refreshes

__all__ = ("ExecutionServices",)


class ExecutionServices:
    """Shared by many collectors of one process; closed by whoever made it.

    Built before or inside an event loop. Leaving it open at process exit loses nothing.

    >>> services = ExecutionServices(pool=AdmissionPool(capacity=8))
    >>> services.pool.statistics.capacity
    8
    """

    def __init__(self, pool: AdmissionPool | None = None) -> None:
        self.pool: AdmissionPool = pool or AdmissionPool()
        self.refreshes: Refreshes = Refreshes()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Refuse further calls."""
        self.pool.close()
