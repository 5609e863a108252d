"""A loopback HTTP server that answers as told, a byte tokenizer, and a fake SGLang engine."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from focus.policies.base import Policy, RequestTag
from focus.sampling import Sampling
from focus.testing.policies import END, ScriptedPolicy


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


Handler = Callable[[Ask], Awaitable[Answer | bytes | None]]


class Loopback:
    """Serves on a free port while open; a handler that returns None resets the connection.

    Bytes are sent as they are, whatever they say.
    """

    def __init__(self, handler: Handler, *, port: int = 0) -> None:
        self._handler = handler
        self._port = port
        self.asks: list[Ask] = []
        self.arrived = asyncio.Event()
        self.connections = 0
        self._tasks: set[asyncio.Task[Any] | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def asked(self, path: str) -> list[Ask]:
        return [ask for ask in self.asks if ask.path == path]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connection, "127.0.0.1", self._port, limit=2**22
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in self._tasks if task), return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.add(asyncio.current_task())
        try:
            while True:
                ask = await _read(reader)
                self.asks.append(ask)
                self.arrived.set()
                answer = await self._handler(ask)
                if answer is None:
                    writer.transport.abort()
                    return
                if isinstance(answer, Cut):
                    writer.write(answer)
                    return
                writer.write(answer if isinstance(answer, bytes) else answer.wire())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client or the test went away
        finally:
            writer.close()


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


class FakeEngine:
    """Answers SGLang's paths from a policy; `change` may spoil any reply.

    Args:
        policy: samples; its replies are named by the client's request name.
        change: (number of the reply, body) → what is sent instead.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        change: Callable[[int, dict[str, Any]], Any] = lambda number, body: body,
    ) -> None:
        self.policy = policy or ScriptedPolicy(lambda prompt, so_far, rng: "4")
        self.change = change
        self.version: str | None = "scripted"
        self.numbers = itertools.count()

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path == "/generate":
            changed = self.change(next(self.numbers), await self.reply(ask.json))
            return changed if isinstance(changed, Answer | bytes | None) else Answer.of(changed)
        if ask.path == "/model_info" and self.version is not None:
            return Answer.of({"model_path": "bytes", "weight_version": self.version})
        return Answer(status=404)

    async def reply(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        params, prefix = asked["sampling_params"], tuple(asked["input_ids"])
        sampling = Sampling(max_tokens=params["max_new_tokens"], seed=params.get("sampling_seed"))
        tag = RequestTag(asked["rid"].partition("~")[0], "")
        reply = await self.policy.generate(prefix, sampling, tag=tag)
        pairs = zip(reply.log_probs, reply.ids, strict=True)
        meta: dict[str, Any] = {
            "id": asked["rid"],
            "finish_reason": {"type": reply.finish.value},
            "prompt_tokens": len(prefix),
            "completion_tokens": len(reply.ids),
            "cached_tokens": 0,
            "output_token_logprobs": [[log_prob, token, None] for log_prob, token in pairs],
        }
        if self.version is not None:
            meta["weight_version"] = self.version
        return {"text": "", "output_ids": list(reply.ids), "meta_info": meta}
