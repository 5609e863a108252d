"""One refresh of a policy for all trees that ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from focus.errors import Aborted
from focus.execution.together import own_error
from focus.policies.base import Refreshable

__all__ = ("Refreshes",)

_Key = tuple[int, int]


class Refreshes:
    """Shares calls of `refresh`, by policy and event loop.

    A call serves whoever asked before it was sent, or it would tell of weights that may have
    been replaced since. So those who ask while one waits for its permit share it, and the
    first who asks later sends another: however many trees begin at once, two calls do.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Key, asyncio.Future[Exception | None]] = {}

    async def share(
        self,
        policy: Refreshable,
        permit: AbstractAsyncContextManager[None],
        call: Callable[[], Awaitable[None]],
    ) -> None:
        """Send `call` under `permit`, or wait for one that is still to be sent.

        Raises:
            Exception: what the call raised; to each who waited for it, an error of its own.
        """
        key = id(policy), id(asyncio.get_running_loop())
        shared = self._waiting.get(key)
        if shared is None:
            await self._send(key, permit, call)
        elif (error := await asyncio.shield(shared)) is not None:
            raise own_error(error)

    async def _send(
        self,
        key: _Key,
        permit: AbstractAsyncContextManager[None],
        call: Callable[[], Awaitable[None]],
    ) -> None:
        outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._waiting[key] = outcome
        error: Exception | None = Aborted("the call that carried this refresh was cancelled")
        try:
            async with permit:
                del self._waiting[key]
                await call()
            error = None
        except Exception as raised:
            error = own_error(raised)  # before the one who sent it is told where
            raise
        finally:
            if self._waiting.get(key) is outcome:
                del self._waiting[key]
            outcome.set_result(error)
