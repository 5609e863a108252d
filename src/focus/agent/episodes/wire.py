"""Requests and replies between FOCUS and the processes of episodes: JSON lines on a socket."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field
from typing import Any

import anyio

from focus.errors import EnvError, NondeterminismError
from focus.records.strict_json import dumps, loads

__all__ = ("AsyncWire", "Wire")

_CHUNK = 2**16


class Wire:
    """The answering end: blocking; a request may bring a descriptor along."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def receive(self) -> tuple[dict[str, Any], int] | None:
        """The next request and its descriptor, -1 for none; None once nobody is left to ask."""
        data, brought = b"", -1
        while not data.endswith(b"\n"):
            try:
                chunk, descriptors, _, _ = socket.recv_fds(self._channel, _CHUNK, 1)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            data += chunk
            for brought in descriptors:
                os.set_inheritable(brought, False)
        return loads(data, where="request"), brought

    def send(self, reply: dict[str, Any]) -> None:
        """Answer the last request."""
        self._channel.sendall(dumps(reply, what="reply") + b"\n")

    def close(self) -> None:
        """Close this end."""
        self._channel.close()


@dataclass(eq=False)
class AsyncWire:
    """The asking end: one request at a time, on whatever event loop asks.

    Attributes:
        whose: names the other end in errors.
        is_broken: an exchange was cut off, so nothing more can be asked.
    """

    channel: socket.socket
    whose: str
    is_broken: bool = False
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    def __post_init__(self) -> None:
        self.channel.setblocking(False)

    async def ask(self, request: dict[str, Any], *, bring: int = -1) -> dict[str, Any]:
        """The reply to a request; a cancellation breaks the wire.

        Raises:
            EnvError: the other end refused, broke or is gone.
        """
        line = dumps(request, what="request") + b"\n"
        async with self._turn:
            if self.is_broken:
                raise EnvError(f"{self.whose} was stopped in the middle of a call")
            self.is_broken = True
            reply = await self._exchange(line, bring)
            self.is_broken = False
        if "nondeterminism" in reply:
            raise NondeterminismError(reply["nondeterminism"])
        if "error" in reply:
            raise EnvError(f"{self.whose}: {reply['error']}")
        return reply

    async def _exchange(self, line: bytes, bring: int) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        data = bytearray()
        try:
            if bring >= 0:  # a short line on an idle socket: the kernel takes it whole
                socket.send_fds(self.channel, [line], [bring])
            else:
                await loop.sock_sendall(self.channel, line)
            while not data.endswith(b"\n"):
                chunk = await loop.sock_recv(self.channel, _CHUNK)
                if not chunk:
                    raise EOFError
                data += chunk
        except (OSError, EOFError) as error:
            raise EnvError(f"{self.whose} is gone: its process has ended") from error
        reply: dict[str, Any] = loads(bytes(data), where=f"reply of {self.whose}")
        return reply

    def close(self) -> None:
        """Close this end."""
        self.is_broken = True
        self.channel.close()
