"""What a program asks: messages and tools of a chat request, and how a later one goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus.errors import EnvError
from focus.problem import Message, ToolCall

__all__ = ("ChatRequest", "read_request")

_ROLES = {"developer": "system", "system": "system", "user": "user", "tool": "tool"} | {
    "assistant": "assistant"
}
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "stream": (None, False),
    "n": (None, 1),
    "logprobs": (None, False),
    "tool_choice": (None, "auto"),
    "response_format": (None, {"type": "text"}),
}
"""Settings that ask for something else than one free message: allowed values."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request for a message.

    Attributes:
        messages: the conversation so far.
        tools: JSON schemas, in the form of OpenAI functions.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    def after(self, earlier: ChatRequest, reply: Message) -> tuple[Message, ...]:
        """The messages that this request adds behind `reply` to an earlier one.

        Raises:
            EnvError: it changes what was said before, the reply or the tools, or adds
                nothing: no exact ids could go on from there.
        """
        told = (*earlier.messages, reply)
        for place, (now, then) in enumerate(zip(self.messages, told, strict=False)):
            if now != then:
                raise EnvError(
                    f"the program's next request has another message {place} than the one before "
                    f"({now.role} {now.content[:40]!r}, was {then.role} {then.content[:40]!r}): "
                    "what was sampled after it cannot be kept. Programs that rewrite their history "
                    "or hold several conversations cannot be trained as one"
                )
        if len(self.messages) <= len(told):
            raise EnvError("the program asks again without a message after the model's reply")
        if self.tools != earlier.tools:
            raise EnvError("the program changed its tools in the middle of a conversation")
        return self.messages[len(told) :]


def read_request(body: Mapping[str, Any]) -> ChatRequest:
    """A chat request from its JSON.

    Sampling settings (model, temperature, max_tokens, seed, …) are read over: one tree is
    sampled under one law, the collector's.

    Raises:
        EnvError: it asks for what cannot be served, or holds what is no text.
    """
    for name, allowed in _REFUSED.items():
        if body.get(name) not in allowed:
            raise EnvError(f"a chat request with {name}={body[name]!r} cannot be served here")
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or not messages:
        raise EnvError("a chat request needs messages")
    tools = tuple(_plain(tool) for tool in body.get("tools") or ())
    return ChatRequest(tuple(_message(_plain(each)) for each in messages), tools)


def _message(plain: Mapping[str, Any]) -> Message:
    role = _ROLES.get(plain.get("role", ""))
    if role is None:
        raise EnvError(f"a chat message of role {plain.get('role')!r} cannot be served here")
    calls = tuple(_call(_plain(call)) for call in plain.get("tool_calls") or ())
    return Message(role, _text(plain.get("content")), calls)


def _call(plain: Mapping[str, Any]) -> ToolCall:
    function = _plain(plain.get("function") or {})
    return ToolCall(str(function.get("name", "")), str(function.get("arguments", "")), plain["id"])


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = [_plain(part) for part in content]
    if strange := [part.get("type") for part in parts if part.get("type") != "text"]:
        raise EnvError(f"a chat message holds {strange[0]!r}; only text can be served here")
    return "".join(str(part["text"]) for part in parts)


def _plain(value: Any) -> Mapping[str, Any]:
    """A mapping, also of what the client of OpenAI gives back as an object."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise EnvError(f"a chat request holds {type(value).__name__} where JSON is needed")
    plain: Mapping[str, Any] = dump()
    return plain
