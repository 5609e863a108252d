"""Messages to prompt ids through a tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from focus.errors import ConfigError, ProblemError
from focus.problem import Message
from focus.rendering.tokenizers import control_ids_in, lock_of
from focus.tokens import TokenIds

__all__ = ("apply_template", "refuse_control_tokens", "render_chat")

_DATA_ROLES = frozenset({"user", "tool"})


def render_chat(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
) -> TokenIds:
    """Prompt ids of a conversation, ready for the assistant's reply.

    The same ids under transformers 4 (a list) and 5 (a mapping). Safe to call from any
    thread. Text that would become a control token is refused, so data never forges or
    ends a turn (docs/concepts/exact-tokens.md).

    Raises:
        ConfigError: the tokenizer has no chat template.
        ProblemError: a message holds control-token text, or the template refuses the
            conversation.
    """
    if not messages:
        raise ProblemError("a prompt needs at least one message")
    if getattr(tokenizer, "chat_template", "") is None:
        raise ConfigError(
            f"the tokenizer of {getattr(tokenizer, 'name_or_path', '?')!r} has no chat template. "
            'Add chat_template.jinja to its folder, or use profile "text" for a base model.'
        )
    for message in messages:
        refuse_control_tokens(tokenizer, message)
    return apply_template(tokenizer, messages, tools)


def refuse_control_tokens(tokenizer: Any, message: Message) -> None:
    """Check that no text of `message` encodes to a control token.

    In user and tool messages every marker counts; in system and assistant messages, where
    marks such as ``<think>`` are the author's own, only special tokens do.

    Raises:
        ProblemError: it does; the text names the tokens and the role.
    """
    texts = (message.content, *(call.arguments for call in message.tool_calls))
    special_only = message.role not in _DATA_ROLES
    for text in texts:
        found = control_ids_in(tokenizer, text, special_only=special_only)
        if found:
            raise ProblemError(
                f"the {message.role} message contains {', '.join(map(repr, found))}, which this "
                "tokenizer turns into control tokens. Remove or respell that text."
            )


def apply_template(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
) -> TokenIds:
    """Ids of the template's text, ready for the assistant's reply; the messages are trusted.

    Raises:
        ConfigError: the template gives no ids.
        ProblemError: it refuses the conversation.
    """
    try:
        with lock_of(tokenizer):
            rendered: object = tokenizer.apply_chat_template(
                [message.to_dict() for message in messages],
                tools=[dict(tool) for tool in tools] or None,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
    except Exception as error:
        raise ProblemError(
            f"the chat template could not render these messages ({type(error).__name__}: {error})"
        ) from error
    return _plain_ids(rendered)


def _plain_ids(rendered: Any) -> TokenIds:
    ids = rendered["input_ids"] if isinstance(rendered, Mapping) else rendered
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if len(ids) == 1 and isinstance(ids[0], list | tuple):
        ids = ids[0]
    if not ids or not all(type(token) is int for token in ids):
        raise ConfigError(f"the chat template gave no list of ids but {type(rendered).__name__}")
    return tuple(ids)
