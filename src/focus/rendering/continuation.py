"""What follows a reply: observations as ids, without rendering the conversation again."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

from focus.errors import ConfigError, ProblemError
from focus.problem import Message
from focus.rendering.chat import apply_template
from focus.rendering.tokenizers import control_ids_in, control_tokens, lock_of
from focus.tokens import TokenIds

__all__ = ("render_continuation", "respelled")

_MOST_RESPELLINGS = 8
_USER, _LATER = Message("user", "."), Message("user", "..")
_REPLIES = (Message("assistant", "yes"), Message("assistant", "no"))

_heads: weakref.WeakKeyDictionary[Any, dict[tuple[str, ...], int]] = weakref.WeakKeyDictionary()
"""By tokenizer and roles: ids before the end of the probe's reply."""


def render_continuation(
    tokenizer: Any, messages: Sequence[Message], *, closed: bool, markers: Sequence[str] = ()
) -> TokenIds:
    """Ids that stand between a reply and the next one: end of turn, messages, header.

    They are read off a probe conversation, so that the real one keeps its exact ids; a
    template for which that is not possible is refused. Text of `messages` that would
    become a control token or one of `markers` is respelled (`respelled`).

    Args:
        closed: the reply's last id ended its turn. If not, the template's own end of turn
            comes first.
        markers: structural text of the tool dialect.

    Raises:
        ConfigError: the template does not end a turn with a special token, leaves messages
            out, or renders them otherwise later in a conversation (drift).
        ProblemError: the template refuses the messages, or a text cannot be respelled.
    """
    if not messages:
        raise ProblemError("a reply is followed by at least one message")
    safe = [
        Message(message.role, respelled(tokenizer, message.content, markers=markers))
        for message in messages
    ]
    ids = _probed(tokenizer, safe)
    tail = ids[_head(tokenizer, safe) :]
    if not tail or tail[0] not in control_tokens(tokenizer, special_only=True):
        raise ConfigError(f"{_template_of(tokenizer)} does not end a turn with a special token")
    return tail[1:] if closed else tail


def respelled(tokenizer: Any, text: str, *, markers: Sequence[str] = ()) -> str:
    """`text` with a space inside everything that is a control token or marker.

    Data then reads almost as before and can neither end a turn nor begin one.

    Raises:
        ProblemError: the tokenizer still makes a control token of it.
    """
    for _ in range(_MOST_RESPELLINGS):
        found = {*control_ids_in(tokenizer, text), *(m for m in markers if m in text)}
        if not found:
            return text
        before = text
        for marker in sorted(found):
            text = text.replace(marker, f"{marker[:1]} {marker[1:]}")
        if text == before:
            break
    raise ProblemError(
        f"an observation contains {', '.join(map(repr, sorted(found)))}, which this tokenizer "
        "turns into control tokens however it is spelled"
    )


def _head(tokenizer: Any, messages: Sequence[Message]) -> int:
    """Ids before the end of the probe's reply; found and checked once per run of roles."""
    roles = tuple(message.role for message in messages)
    with lock_of(tokenizer):
        known = _heads.setdefault(tokenizer, {})
        if roles not in known:
            known[roles] = _checked_head(tokenizer, messages)
        return known[roles]


def _checked_head(tokenizer: Any, messages: Sequence[Message]) -> int:
    one = _probed(tokenizer, messages)
    other = apply_template(tokenizer, [_USER, _REPLIES[1], *messages])
    tail = one[len(one) - _common_suffix(one, other) :]
    later = apply_template(tokenizer, [_USER, _REPLIES[1], _LATER, _REPLIES[0], *messages])
    if not tail or later[-len(tail) :] != tail:
        raise ConfigError(
            f"{_template_of(tokenizer)} renders the same messages differently later in a "
            "conversation; what was sampled before could not stay as it is"
        )
    bare = apply_template(tokenizer, [_USER, _REPLIES[0]])
    if len(one) - len(bare) < sum(1 for message in messages if message.content):
        roles = ", ".join(sorted({message.role for message in messages}))
        raise ConfigError(f"{_template_of(tokenizer)} leaves out messages of role {roles}")
    return len(one) - len(tail)


def _probed(tokenizer: Any, messages: Sequence[Message]) -> TokenIds:
    return apply_template(tokenizer, [_USER, _REPLIES[0], *messages])


def _common_suffix(one: TokenIds, other: TokenIds) -> int:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _template_of(tokenizer: Any) -> str:
    return f"the chat template of {getattr(tokenizer, 'name_or_path', '?')!r}"
