"""A hosted chat model with native tool calls: for evaluation, never for training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from focus._closing import Closing
from focus.errors import ConfigError, CorruptReply, Refused, RequestError
from focus.policies.base import RequestTag
from focus.policies.http import HttpServer
from focus.problem import Message
from focus.rendering import dialect_named
from focus.sampling import Sampling
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("OpenAIChatPolicy",)

_FILLER = 0
"""Stands for the rest of a reply's tokens, so that budgets count what the server counted."""
_HERMES = dialect_named("hermes")
_FINISHES = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "length": FinishReason.LENGTH,
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """What an id stands for: a message as it is sent and as it is read, or the tools."""

    wire: Any
    text: str
    kind: str


class OpenAIChatPolicy(Closing):
    """Any server of the chat completions API; a :class:`focus.policies.base.Policy`.

    Such a server shows no token ids and no log-probs of its tool calls, so an id here stands
    for a whole message, held in this object, and log-probs are 0: good for
    ``Collector.evaluate``; ``collect`` refuses the policy with `EvaluationOnly` before any
    request. Read its replies with ``Turns("hermes")``: native calls are written in that
    dialect when they are decoded, a call that is no JSON with its fault.

    A reply takes as many ids as the server counts tokens, so allowances and budgets mean
    the server's tokens; the prompt takes one per message. A reply that was cut off cannot
    be gone on with (`Refused`): give it room with ``Turns("hermes", tokens=…)``.

    Args:
        url: base address, such as ``https://api.openai.com/v1``.
        model: what the server calls it; also its version here, unless `version` is given.
        api_key: bearer token, sent to this server only and shown nowhere.
        version: name of the weights, where the model's name does not tell.
        locks_sampling: the server takes no temperature and top-p; they are left out.
        settings: sent with every request, such as ``{"reasoning_effort": "low"}``.
        client: an httpx client to borrow.

    Raises:
        ConfigError: the address is none, or `settings` names what is set here.
    """

    evaluation_only = True
    context_limit: int | None = None
    train_temperature = 1.0
    vocab_size: int | None = None

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        version: str | None = None,
        locks_sampling: bool = False,
        settings: Mapping[str, Any] | None = None,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        self._server = HttpServer(url, api_key=api_key, client=client)
        self._model = model
        self.version = version or model
        self._locks_sampling = locks_sampling
        self._settings = dict(settings or {})
        if taken := {"messages", "tools", "model", "n", "stream"}.intersection(self._settings):
            raise ConfigError(f"settings name {min(taken)!r}, which is set by the policy itself")
        self._entries: list[_Entry] = [_Entry(None, "", "filler")]
        self._known: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"OpenAIChatPolicy({self._server.url!r}, model={self._model!r})"

    @property
    def tokenizer_hash(self) -> str:
        return ""

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        """Ids of the tools and of each message."""
        declared = _Entry([dict(tool) for tool in tools], "", "tools")
        return (self._id(declared), *map(self._message, messages))

    def continuation(self, messages: Sequence[Message], *, closed: bool) -> TokenIds:
        """Ids of the messages that answer a reply.

        Raises:
            ConfigError: the reply was cut off; a chat API cannot end it for the model.
        """
        if not closed:
            raise ConfigError(
                "a reply of a chat API that was cut off cannot be answered; give it more room "
                'with Turns("hermes", tokens=...)'
            )
        return tuple(map(self._message, messages))

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """What the messages say; calls in the dialect hermes."""
        return "".join(self._entries[token].text for token in ids)

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        """Ask for the next message.

        Raises:
            Refused: an id that is not of this object, or a reply that would be gone on with.
            RequestError: what went wrong on the way, by kind.
        """
        payload = self._payload(prefix, sampling)
        body = await self._server.post("/chat/completions", payload)
        fault: RequestError | None = None
        try:
            entry, finish, count = _read(body)
        except CorruptReply as error:
            fault = error
        if fault is not None:
            raise self._server.cleaned(fault)
        if finish is FinishReason.LENGTH and sampling.max_tokens is not None:
            count = sampling.max_tokens
        ids = (self._id(entry), *(_FILLER,) * (max(1, count) - 1))
        return Generation(
            ids, (0.0,) * len(ids), finish, self.version, request_id=tag.request if tag else ""
        )

    async def aclose(self) -> None:
        """Close the client that it made itself."""
        await self._server.aclose()

    def _payload(self, prefix: TokenIds, sampling: Sampling) -> dict[str, Any]:
        if not all(0 <= token < len(self._entries) for token in prefix):
            raise Refused("the prefix holds ids that this policy has not given")
        entries = [
            entry for entry in map(self._entries.__getitem__, prefix) if entry.kind != "filler"
        ]
        if entries and entries[-1].kind == "reply":
            raise Refused(
                "a chat API cannot go on with a reply that was cut off; give it more room with "
                'Turns("hermes", tokens=...)'
            )
        tools: list[Any] = next((e.wire for e in entries if e.kind == "tools"), [])
        temperature, top_p, top_k = sampling.law
        if top_k is not None:
            raise Refused("a chat API takes no top_k")
        law = {} if self._locks_sampling else {"temperature": temperature, "top_p": top_p}
        seed = {} if sampling.seed is None else {"seed": sampling.seed}
        room = {} if sampling.max_tokens is None else {"max_tokens": sampling.max_tokens}
        return {
            **self._settings,
            "model": self._model,
            "messages": _paired([entry.wire for entry in entries if entry.kind != "tools"]),
            **({"tools": tools} if tools else {}),
            **law,
            **seed,
            **room,
        }

    def _message(self, message: Message) -> int:
        return self._id(_Entry(message.to_dict(), message.content, "message"))

    def _id(self, entry: _Entry) -> int:
        """One id per distinct entry."""
        told = json.dumps([entry.kind, entry.wire], sort_keys=True)
        name = hashlib.sha256(told.encode()).hexdigest()
        if name not in self._known:
            self._known[name] = len(self._entries)
            self._entries.append(entry)
        return self._known[name]


def _paired(wires: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages, each tool's answer with the id of the call that it answers."""
    told: list[dict[str, Any]] = []
    waiting: list[str] = []
    for wire in wires:
        if wire["role"] == "assistant":
            waiting = [call.get("id", "") for call in wire.get("tool_calls") or ()]
        if wire["role"] == "tool" and waiting:
            wire = {**wire, "tool_call_id": waiting.pop(0)}
        told.append(dict(wire))
    return told


def _read(body: Any) -> tuple[_Entry, FinishReason, int]:
    """The message of a reply, why it ended, and how many tokens the server counted.

    Raises:
        CorruptReply: the reply has another form, or was filtered.
    """
    try:
        [choice] = body["choices"]
        message, reason = choice["message"], choice["finish_reason"]
        content, calls = message.get("content") or "", message.get("tool_calls") or []
        shown = "".join(_shown(call["function"]) for call in calls)
        ids = [str(call["id"]) for call in calls]
        count = int((body.get("usage") or {}).get("completion_tokens") or 1)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptReply(f"the reply is no chat completion ({type(error).__name__})") from None
    if reason not in _FINISHES or not isinstance(content, str):
        raise CorruptReply(f"the reply ended with {reason!r:.60}, or has no text")
    wire: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        functions = [dict(call["function"]) for call in calls]
        wire["tool_calls"] = [
            {"id": name, "type": "function", "function": function}
            for name, function in zip(ids, functions, strict=True)
        ]
    return _Entry(wire, _plain(content) + shown, "reply"), _FINISHES[reason], count


def _shown(function: Mapping[str, Any]) -> str:
    """A native call as hermes writes it; arguments that are no JSON stay as they are."""
    name, arguments = json.dumps(function["name"]), _plain(str(function["arguments"] or "{}"))
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def _plain(text: str) -> str:
    """Text in which no marker of the dialect stands."""
    for marker in _HERMES.markers:
        text = text.replace(marker, f"{marker[:1]} {marker[1:]}")
    return text
