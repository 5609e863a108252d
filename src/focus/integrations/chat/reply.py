"""What a program reads: a chat completion, as an object with attributes and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from focus.agent.turns import TurnAction
from focus.errors import SchemaError
from focus.records.strict_json import loads
from focus.rendering import Call, dialect_named

__all__ = ("Completion", "completion")


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply in the form of an OpenAI chat completion.

    Attributes:
        plain: the JSON object.

    >>> reply = Completion({"choices": [{"message": {"content": "4", "tool_calls": None}}]})
    >>> reply.choices[0].message.content
    '4'
    """

    plain: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name not in self.plain:
            raise AttributeError(f"a chat completion has no {name!r}")
        return _as_object(self.plain[name])

    def model_dump(self) -> dict[str, Any]:
        """The JSON object, as the client of OpenAI gives it."""
        return dict(self.plain)


class _Object(SimpleNamespace):
    """Attributes of a JSON object."""

    def model_dump(self, **_: Any) -> dict[str, Any]:
        plain = {name: _as_plain(value) for name, value in vars(self).items()}
        return {name: value for name, value in plain.items() if value is not None}


def completion(
    action: TurnAction, *, turn: int, schemas: Mapping[str, Mapping[str, Any]]
) -> Completion:
    """The reply that a turn of the policy is, with call ids that depend on its place only.

    Args:
        turn: its number in the episode.
        schemas: parameters of each tool that was declared, to type text arguments by.
    """
    calls = [
        {
            "id": f"call_{turn}_{place}",
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(_typed(call, action.dialect, schemas), ensure_ascii=False),
            },
        }
        for place, call in enumerate(action.calls)
    ]
    message = {
        "role": "assistant",
        "content": action.text or (None if calls else ""),
        "refusal": None,
        "tool_calls": calls or None,
    }
    return Completion(
        {
            "id": f"focus-{turn}",
            "object": "chat.completion",
            "created": 0,
            "model": "policy",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls" if calls else "stop",
                    "logprobs": None,
                    "message": message,
                }
            ],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
    )


def _typed(call: Call, dialect: str, schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Arguments as JSON values, also where the dialect writes them all as text."""
    if not dialect_named(dialect).has_text_arguments:
        return dict(call.arguments)
    properties = schemas.get(call.name, {}).get("properties", {})
    return {name: _value(text, properties.get(name, {})) for name, text in call.arguments.items()}


def _value(text: Any, schema: Mapping[str, Any]) -> Any:
    if not isinstance(text, str) or schema.get("type", "string") == "string":
        return text
    try:
        return loads(text.encode("utf-8", "surrogatepass"), where="an argument")
    except SchemaError:
        return text


def _as_object(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Object(**{name: _as_object(inner) for name, inner in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_as_object(inner) for inner in value]
    return value


def _as_plain(value: Any) -> Any:
    if isinstance(value, _Object):
        return value.model_dump()
    return [_as_plain(inner) for inner in value] if isinstance(value, list) else value
