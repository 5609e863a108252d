"""An HTTP server on this machine that answers as told, and a tokenizer of bytes.

Bytes are sent as they are, whatever they say; nothing outside the machine is reached.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

from focus.testing.policies import END

__all__ = ("Answer", "Ask", "ByteTokenizer", "Cut", "Handler", "Loopback", "Speech")


@dataclass(frozen=True)
class Ask:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """One reply: any status, headers and bytes."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any, status: int = 200, **headers: str) -> Answer:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return cls(json.dumps(value).encode(), status, named)

    def wire(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} Whatever", f"content-length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


class Cut(bytes):
    """Bytes after which the connection closes."""


@runtime_checkable
class Speech(Protocol):
    """A reply that is more than bytes: it holds back, trickles or hangs up."""

    async def say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Speak; whether the connection may carry another request."""
        ...


Handler = Callable[[Ask], Awaitable[Answer | bytes | Speech | None]]


class Loopback:
    """Serves on a free port while open; a handler that returns None resets the connection.

    Args:
        handler: says what is answered.
        port: where; 0 is a free one.
        host: the address of this machine that it listens at.
        tls: the server's certificate; None speaks plain HTTP.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._handler = handler
        self._port = port
        self._host = host
        self._tls = tls
        self.asks: list[Ask] = []
        self.arrived = asyncio.Event()
        self.connections = 0
        self._tasks: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def standing(self) -> int:
        """Connections that neither side has closed."""
        return len(self._tasks)

    def asked(self, path: str) -> list[Ask]:
        """The requests to one path, in order of arrival."""
        return [ask for ask in self.asks if ask.path == path]

    async def listen(self) -> None:
        """Take connections; again, on the same port, after `refuse`."""
        self._server = await asyncio.start_server(
            self._connected, self._host, self._port, limit=2**22, ssl=self._tls
        )
        self._port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Take no new connection; those that stand go on."""
        self._server.close()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = set(self._tasks)
        for task, writer in self._tasks.items():
            task.cancel()
            writer.transport.abort()  # a task that is cancelled before it began closes nothing
        if tasks:
            await asyncio.wait(tasks)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.ensure_future(self._connection(reader, writer))
        self._tasks[task] = writer
        task.add_done_callback(self._tasks.pop)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                ask = await _read(reader)
                self.asks.append(ask)
                self.arrived.set()
                if not await _answer(await self._handler(ask), reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away
        except asyncio.CancelledError:  # the test did
            writer.transport.abort()
        finally:
            await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close it for good: a transport that its loop outlives is never closed."""
    writer.close()
    try:
        await writer.wait_closed()
    except ConnectionError:
        pass
    except asyncio.CancelledError:
        writer.transport.abort()


async def _answer(
    answer: Answer | bytes | Speech | None,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    """Send one answer; whether the connection stays."""
    if answer is None:
        writer.transport.abort()
        return False
    if isinstance(answer, Speech):
        return await answer.say(reader, writer)
    writer.write(answer.wire() if isinstance(answer, Answer) else answer)
    if isinstance(answer, Cut):
        return False
    await writer.drain()
    return True


async def _read(reader: asyncio.StreamReader) -> Ask:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, path, version = first.split(" ")
    if version != "HTTP/1.1":
        raise ConnectionError(f"no such protocol: {version}")
    headers = {n.lower(): v for n, v in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Ask(method, path, headers, body)


class ByteTokenizer:
    """Speaks the byte vocabulary of `ScriptedPolicy`, prompts included."""

    name_or_path = "bytes"
    chat_template = "bytes"
    added_tokens_decoder: Mapping[int, Any] = {}
    all_special_ids: Sequence[int] = (END,)

    def __len__(self) -> int:
        return 257

    def get_vocab(self) -> dict[str, int]:
        return {str(token): token for token in range(257)}

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True, **_: Any) -> str:
        text = bytes(token for token in ids if token < 256).decode(errors="replace")
        return text + ("<end>" if END in ids and not skip_special_tokens else "")

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> list[int]:
        turns = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return self.encode(turns + "assistant: ")
