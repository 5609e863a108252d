"""A reply as steps on a connection: bytes, silence, a trickle, a hang-up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = (
    "Hangup",
    "HoldBack",
    "Pause",
    "Reset",
    "Send",
    "Step",
    "StopSending",
    "Trickle",
    "UntilUsed",
    "Wire",
    "head",
    "json_reply",
)


@dataclass(frozen=True)
class Send:
    """Write bytes."""

    data: bytes


@dataclass(frozen=True)
class Pause:
    """Wait a while."""

    seconds: float


@dataclass(frozen=True)
class HoldBack:
    """Wait until the client goes away."""


@dataclass(frozen=True)
class UntilUsed:
    """Wait for the next byte of the client, or its end."""


@dataclass(frozen=True)
class Trickle:
    """Write byte by byte until the client goes away; the last byte never comes."""

    data: bytes
    pause_s: float


@dataclass(frozen=True)
class StopSending:
    """Close our direction only."""


@dataclass(frozen=True)
class Hangup:
    """Close the connection after what was written."""


@dataclass(frozen=True)
class Reset:
    """Tear the connection down at once; what was written may be lost."""


Step = Send | Pause | HoldBack | UntilUsed | Trickle | StopSending | Hangup | Reset


class Wire:
    """Steps of one reply, as :class:`focus.testing.loopback.Speech`.

    After the last step the connection stays open for another request, unless a step ended it.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    async def say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for step in self._steps:
            if not await _take(step, reader, writer):
                return False
        return not writer.is_closing()


async def _take(step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    match step:
        case Send(data):
            writer.write(data)
            await writer.drain()
        case Pause(seconds):
            await asyncio.sleep(seconds)
        case HoldBack():
            await _client_gone(reader)
        case UntilUsed():
            await reader.read(1)
        case Trickle(data, pause_s):
            await _trickle(data, pause_s, reader, writer)
        case StopSending():
            writer.write_eof()
        case Hangup():
            return False
        case Reset():
            writer.transport.abort()
            return False
    return True


async def _client_gone(reader: asyncio.StreamReader) -> None:
    while await reader.read(2**16):
        pass


async def _trickle(
    data: bytes, pause_s: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    gone = asyncio.ensure_future(_client_gone(reader))
    try:
        for byte in data[:-1]:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.wait([gone], timeout=pause_s)
            if gone.done():
                return
        await asyncio.wait([gone])
    finally:
        gone.cancel()


def head(
    length: int | None, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> bytes:
    """Status line and headers of a reply; without a length none is told.

    >>> head(2).decode().splitlines()[1]
    'content-length: 2'
    """
    lines = [f"HTTP/1.1 {status} Chaos"]
    if length is not None:
        lines.append(f"content-length: {length}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode()


def json_reply(value: Any) -> bytes:
    """A whole reply of status 200; NaN and infinities go out as Python spells them."""
    body = json.dumps(value).encode()
    return head(len(body)) + body
