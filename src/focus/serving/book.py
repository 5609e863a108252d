"""Which requests are open, how to stop them, and a moment in which none is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

__all__ = ("RequestBook",)


class RequestBook:
    """Open requests by name, and the turn between them and changes of the weights.

    Requests run side by side. A change waits until none is open and holds new ones back
    until it is done, so no reply is sampled by two sets of weights.
    """

    def __init__(self) -> None:
        self._open: dict[anyio.CancelScope, str] = {}
        self._turn = anyio.Condition()
        self._is_changing = False

    def __len__(self) -> int:
        """Requests open now."""
        return len(self._open)

    @asynccontextmanager
    async def admitted(self, rid: str) -> AsyncIterator[anyio.CancelScope]:
        """Keep a request open inside the block; an abort cancels the block and ends it quietly."""
        async with self._turn:
            while self._is_changing:
                await self._turn.wait()
            scope = anyio.CancelScope()
            self._open[scope] = rid
        try:
            with scope:
                yield scope
        finally:
            del self._open[scope]
            with anyio.CancelScope(shield=True):
                async with self._turn:
                    self._turn.notify_all()

    def abort(self, rid: str) -> int:
        """Abort every open request whose name starts with `rid`, as SGLang does; how many."""
        hit = [scope for scope, name in self._open.items() if name.startswith(rid)]
        for scope in hit:
            scope.cancel()
        return len(hit)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait for open requests to end, and keep new ones waiting inside the block."""
        async with self._turn:
            while self._is_changing:
                await self._turn.wait()
            self._is_changing = True
        try:
            async with self._turn:
                while self._open:
                    await self._turn.wait()
            yield
        finally:
            self._is_changing = False
            with anyio.CancelScope(shield=True):
                async with self._turn:
                    self._turn.notify_all()
