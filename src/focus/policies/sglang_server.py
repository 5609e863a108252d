"""One SGLang server or router: what FOCUS asks it, beside sampling."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio

from focus.errors import (
    ConfigError,
    CorruptReply,
    FatalError,
    Refused,
    RequestError,
)
from focus.policies.http import HttpServer, JsonServer

__all__ = ("SGLangServer", "usable_context")

_ABORT_S = 0.5
"""Most seconds that telling the server of a cancelled request may hold its caller up."""

_REPLY_BYTES = 2**20
_TOKEN_BYTES = 512
"""A sampled token is some 50 bytes of JSON, text included."""


def usable_context(length: int) -> int:
    """Most tokens of prompt plus reply that SGLang takes at a context length.

    It wants prompts shorter than its length − 6 and sums of at most its length − 2.

    >>> usable_context(8192)
    8186
    """
    return length - 6


class SGLangServer:
    """The endpoints of SGLang over any JSON transport.

    Args:
        transport: carries the requests; borrowed.
        abort_at_workers: the address is a router, which passes no aborts on: ask it for its
            workers and tell them, wherever they are.
    """

    def __init__(self, transport: JsonServer, *, abort_at_workers: bool) -> None:
        self._transport = transport
        self._abort_at_workers = abort_at_workers

    async def generate(self, payload: Mapping[str, Any], *, headers: Mapping[str, str]) -> Any:
        """Post one request; cancelled, it is aborted on the server too.

        Raises:
            RequestError: it failed.
        """
        try:
            return await self._transport.post(
                "/generate", payload, headers=headers, most_bytes=_most_bytes(payload)
            )
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_ABORT_S, shield=True):
                await self._abort_all(payload["rid"])
            raise

    async def weight_version(self) -> str | None:
        """The weights it serves; None when it does not say.

        Raises:
            TransientError: not reached.
        """
        told = (await self.model_info()).get("weight_version")
        return None if told in (None, "") else str(told)

    async def context_limit(self) -> int | None:
        """Most tokens it takes for prompt plus reply; None when it does not say.

        Raises:
            TransientError: not reached.
        """
        info = await self._first_of("/server_info", "/get_server_info")
        taken, length = info.get("max_req_input_len"), info.get("context_length")
        if isinstance(taken, int):
            return taken
        return usable_context(length) if isinstance(length, int) else None

    async def model_info(self) -> Mapping[str, Any]:
        """What it says of its model; empty when it says nothing.

        Raises:
            TransientError: not reached.
        """
        return await self._first_of("/model_info", "/get_model_info")

    async def _first_of(self, *paths: str) -> Mapping[str, Any]:
        """The object at the first path that has one: names differ by age, and at routers."""
        for path in paths:
            with suppress(FatalError, Refused, CorruptReply):
                found = await self._transport.get(path)
                if isinstance(found, Mapping):
                    return found
        return {}

    async def _abort_all(self, rids: str | list[str]) -> None:
        async with anyio.create_task_group() as group:
            for rid in [rids] if isinstance(rids, str) else rids:
                group.start_soon(self._abort, rid)

    async def _abort(self, rid: str) -> None:
        """Best effort: a server that cannot be told will finish the request for nobody."""
        with suppress(RequestError):
            try:
                await self._transport.post("/abort_request", {"rid": rid})
            except FatalError:
                if not self._abort_at_workers:
                    raise
                await self._abort_at_each_worker(rid)

    async def _abort_at_each_worker(self, rid: str) -> None:
        listed = await self._transport.get("/workers")
        workers = listed.get("workers") if isinstance(listed, Mapping) else None
        async with anyio.create_task_group() as group:
            for worker in workers if isinstance(workers, list) else []:
                if isinstance(worker, Mapping) and isinstance(worker.get("url"), str):
                    group.start_soon(_abort_at, worker["url"], rid)


def _most_bytes(payload: Mapping[str, Any]) -> int:
    """More than any honest reply to this request has: parsed JSON takes far more room."""
    settings = payload["sampling_params"]
    each = settings if isinstance(settings, list) else [settings]
    tokens: int = sum(one["max_new_tokens"] for one in each)
    return _REPLY_BYTES + tokens * _TOKEN_BYTES


async def _abort_at(url: str, rid: str) -> None:
    with suppress(RequestError, ConfigError):
        server = HttpServer(url)
        try:
            await server.post("/abort_request", {"rid": rid})
        finally:
            await server.aclose()
