"""One prompt to collect for, and the messages it is made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from focus.errors import ProblemError

__all__ = ("Message", "Problem", "ToolCall")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a message asks for: tool name and JSON arguments."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    >>> Message("user", "2+2?").to_dict()
    {'role': 'user', 'content': '2+2?'}
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The form that chat templates and JSON take."""
        plain: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            plain["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return plain


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One prompt to collect a tree for.

    Attributes:
        id: the data set's own name for it; data, never part of a path.
        prompt: text or messages.
        label: what the grader compares with; never shown to policy or critic.
        metadata: anything else; not read by FOCUS.

    Raises:
        ProblemError: the prompt is empty or of another type.

    >>> a, b = Problem(id=1, prompt="2+2"), Problem(id="one", prompt="2+2")
    >>> a.key == b.key
    True
    """

    id: int | str
    prompt: str | tuple[Message, ...]
    label: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.prompt, list):
            object.__setattr__(self, "prompt", tuple(self.prompt))
        if not isinstance(self.prompt, str | tuple) or not self.prompt:
            raise ProblemError(f"problem {self.id!r}: prompt must be non-empty text or messages")

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt as messages; plain text is one user message."""
        if isinstance(self.prompt, str):
            return (Message("user", self.prompt),)
        return self.prompt

    @property
    def key(self) -> str:
        """Hash of canonical prompt and label: equal problems share it, whatever their ids."""
        canonical = json.dumps(
            [[message.to_dict() for message in self.messages], self.label],
            sort_keys=True,
            ensure_ascii=True,
            default=str,
        )
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]
