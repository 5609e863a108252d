"""Profiles: named, versioned ways to turn messages into prompt ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus.errors import ConfigError, ProblemError
from focus.problem import Message
from focus.rendering.chat import refuse_control_tokens, render_chat
from focus.rendering.continuation import render_continuation
from focus.rendering.dialects import DIALECTS, Dialect
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
        dialect: how tools are called under it; None for profiles without tools.
        has_turns: a reply can be followed by messages and another reply.
    """

    name: str
    version: int
    render: Render
    dialect: Dialect | None = None
    has_turns: bool = True

    @property
    def renderer(self) -> str:
        """Name and version as records carry them, e.g. ``"token_chunk/1"``."""
        return f"{self.name}/{self.version}"

    def continuation(
        self, tokenizer: Any, messages: Sequence[Message], *, closed: bool
    ) -> TokenIds:
        """Ids between a reply and the next one: see `render_continuation`.

        Raises:
            ConfigError: the profile or the template has no turns to append.
            ProblemError: the messages cannot be rendered.
        """
        if not self.has_turns:
            raise ConfigError(f'profile "{self.name}" has no turns: nothing can follow a reply')
        markers = () if self.dialect is None else self.dialect.markers
        return render_continuation(tokenizer, messages, closed=closed, markers=markers)


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


def _render_with_tools(dialect: Dialect) -> Render:
    def render(
        tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> TokenIds:
        ids = render_chat(tokenizer, messages, tools)
        if not tools or ids != render_chat(tokenizer, messages):
            return ids
        return render_chat(tokenizer, _with_instructions(messages, dialect.instructions(tools)))

    return render


def _with_instructions(messages: Sequence[Message], text: str) -> list[Message]:
    """The messages with `text` in their system message: for templates that show no tools."""
    if messages[0].role == "system":
        return [Message("system", f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message("system", text), *messages]


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
        Profile("text", 1, _render_text, has_turns=False),
        *(
            Profile(name, 1, _render_with_tools(dialect), dialect=dialect)
            for name, dialect in DIALECTS.items()
        ),
    )
}
"""token_chunk: chat template, no tools, replies continued as exact ids.
hermes, qwen_xml: chat template with tools; where it shows none, they stand in the system message.
text: the messages' contents alone, after the tokenizer's own start token if it adds one; for base
models without a template."""
