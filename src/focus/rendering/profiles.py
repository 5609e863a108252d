"""Profiles: named, versioned ways to turn messages into prompt ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus.errors import ConfigError, ProblemError
from focus.problem import Message
from focus.rendering.chat import refuse_control_tokens, render_chat
from focus.rendering.tokenizers import lock_of
from focus.tokens import TokenIds

__all__ = ("PROFILES", "Profile", "profile_named")

Render = Callable[[Any, Sequence[Message], Sequence[Mapping[str, Any]]], TokenIds]


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to render.

    Attributes:
        name: what users write, e.g. ``"token_chunk"``.
        version: raised whenever the same messages would give other ids.
        render: (tokenizer, messages, tools) → prompt ids.
    """

    name: str
    version: int
    render: Render

    @property
    def renderer(self) -> str:
        """Name and version as records carry them, e.g. ``"token_chunk/1"``."""
        return f"{self.name}/{self.version}"


def profile_named(name: str) -> Profile:
    """The profile that users call `name`.

    Raises:
        ConfigError: there is none; the text lists those there are.

    >>> profile_named("token_chunk").renderer
    'token_chunk/1'
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise ConfigError(f"unknown profile {name!r}; known: {', '.join(sorted(PROFILES))}")
    return profile


def _render_without_tools(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> TokenIds:
    _refuse_tools("token_chunk", tools)
    return render_chat(tokenizer, messages)


def _render_text(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> TokenIds:
    _refuse_tools("text", tools)
    for message in messages:
        refuse_control_tokens(tokenizer, message)
    text = "\n\n".join(message.content for message in messages)
    with lock_of(tokenizer):
        ids = tuple(tokenizer.encode(text))
    if not ids:
        raise ProblemError("the prompt is empty")
    return ids


def _refuse_tools(name: str, tools: Sequence[Mapping[str, Any]]) -> None:
    if tools:
        raise ConfigError(f'profile "{name}" is used without tools, got {len(tools)}')


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("token_chunk", 1, _render_without_tools),
        Profile("text", 1, _render_text),
    )
}
"""token_chunk: chat template, no tools, replies continued as exact ids.
text: the messages' contents alone, after the tokenizer's own start token if it adds one; for base
models without a template."""
