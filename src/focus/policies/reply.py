"""The fields that replies of every server have, read strictly; no network here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from focus.errors import CorruptReply
from focus.policies.faults import classify_status
from focus.tokens import TokenIds

__all__ = (
    "check_count",
    "check_stop",
    "error_object",
    "read_cached",
    "read_log_prob",
    "read_token",
    "shown",
)


def error_object(body: Mapping[str, Any], *, missing: str) -> Exception:
    """An error sent with status 200: what its own code says, else a corrupt reply.

    Args:
        missing: the field that a reply has and this one has not.
    """
    inner = body.get("error")
    error = inner if isinstance(inner, Mapping) else body
    code, message = error.get("code"), str(error.get("message", inner))[:500]
    if isinstance(code, int) and 400 <= code < 600:
        return classify_status(code, body=message) or CorruptReply(message)
    names = [str(name)[:40] for name in list(body)[:8]]
    return CorruptReply(f"the reply has no {missing} but {names}: {message}")


def read_log_prob(value: Any, position: int) -> float:
    """A finite number as a float; its sign is checked with the rest of the reply."""
    is_small = type(value) is int and abs(value) < 2**53
    if is_small or (type(value) is float and math.isfinite(value)):
        return float(value)
    raise CorruptReply(f"log-prob {shown(value)} at position {position}")


def read_token(value: Any, position: int) -> int:
    """An integer; its range is checked with the rest of the reply."""
    if type(value) is not int:
        raise CorruptReply(f"id {shown(value)} at position {position} is not a token id")
    return value


def check_count(fields: Mapping[str, Any], name: str, count: int) -> None:
    """What a server counted, where it tells."""
    told = fields.get(name, count)
    if type(told) is not int or told != count:
        raise CorruptReply(f"{name} is {shown(told)} where there are {count}")


def check_stop(matched: Any, ids: TokenIds) -> None:
    """We send stop ids only, so a stop shows in the last id.

    Anything else was cut from a longer reply, or is the server's name for a failure.
    """
    if matched is None or (type(matched) is int and ids[-1:] == (matched,)):
        return
    raise CorruptReply(f"stopped at {shown(matched)}, but the ids end in {ids[-1:]}")


def read_cached(value: Any, prompt_tokens: int) -> int | None:
    """Prompt tokens that were cached; None where the server does not tell."""
    if value is None or (type(value) is int and 0 <= value <= prompt_tokens):
        return value
    raise CorruptReply(f"cached_tokens is {shown(value)} of {prompt_tokens} prompt tokens")


def shown(value: Any) -> str:
    """A value's head, however large or hostile it is."""
    if isinstance(value, str):
        return repr(value[:80])
    if isinstance(value, list | Mapping):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)[:80]
