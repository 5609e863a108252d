"""A reply against the request it answers. Missing is not zero; nothing is repaired."""

from __future__ import annotations

import math
from typing import Any

from focus.errors import Aborted, CorruptReply, FatalError
from focus.sampling import Sampling
from focus.tokens import FinishReason, Generation

__all__ = ("LOG_PROB_SLACK", "check_generation", "check_shape")

LOG_PROB_SLACK = 1e-6
"""Largest log-prob accepted above 0, for servers that round."""

_INT, _FLOAT = {int}, {float}


def check_shape(reply: Any) -> None:
    """Refuse what is no reply at all, before any field of it is read.

    Raises:
        CorruptReply: not a `Generation`, or a field of another type.
    """
    if not isinstance(reply, Generation):
        raise CorruptReply(f"the policy returned {type(reply).__name__}, not a Generation")
    cached = reply.cached_tokens
    if type(reply.ids) is not tuple:
        name = "ids"
    elif type(reply.log_probs) is not tuple:
        name = "log_probs"
    elif type(reply.finish) is not FinishReason:
        name = "finish"
    elif not isinstance(reply.version, str):
        name = "version"
    elif cached is not None and not (type(cached) is int and cached >= 0):
        name = "cached_tokens"
    else:
        return
    text = repr(getattr(reply, name))[:100]
    raise CorruptReply(f"{name} of the reply is {text}", request_id=reply.request_id)


def check_generation(
    reply: Generation, sampling: Sampling, *, version: str, vocab_size: int | None
) -> None:
    """Accept a reply, or say exactly what is wrong with it.

    Raises:
        Aborted: the server ended it early.
        CorruptReply: counts differ, a value is not a finite log-prob, an id is outside the
            vocabulary, more ids than asked, none at all, or "length" short of the cap.
        FatalError: it was sampled by other weights than the tree's.
    """
    if reply.finish is FinishReason.ABORT:
        raise Aborted("the server aborted the request", request_id=reply.request_id)
    if reply.version != version:
        raise FatalError(
            f"weights changed inside one tree: pinned {version!r}, replied {reply.version!r}",
            request_id=reply.request_id,
        )
    problem = (
        _count_fault(reply, sampling) or _id_fault(reply, vocab_size) or _log_prob_fault(reply)
    )
    if problem:
        raise CorruptReply(problem, request_id=reply.request_id)


def _count_fault(reply: Generation, sampling: Sampling) -> str | None:
    count, cap = len(reply.ids), sampling.max_tokens
    if count != len(reply.log_probs):
        return f"{len(reply.log_probs)} log-probs for {count} ids"
    if count == 0:
        return f"no ids with finish reason {reply.finish.value!r}"
    if cap is not None and count > cap:
        return f"{count} ids where at most {cap} were asked for"
    if reply.finish is FinishReason.LENGTH and cap is not None and count < cap:
        return f"finish reason 'length' after {count} of {cap} ids"
    return None


def _id_fault(reply: Generation, vocab_size: int | None) -> str | None:
    """The first id that is none; they are looked at together first, which takes a fraction."""
    ids = reply.ids
    are_ids = set(map(type, ids)) == _INT and min(ids) >= 0
    if are_ids and (vocab_size is None or max(ids) < vocab_size):
        return None
    for position, token in enumerate(reply.ids):
        if type(token) is not int or token < 0:
            return f"id {token!r} at position {position} is not a token id"
        if vocab_size is not None and token >= vocab_size:
            return f"id {token} at position {position} is outside the vocabulary of {vocab_size}"
    return None


def _log_prob_fault(reply: Generation) -> str | None:
    """The first log-prob that is none; they are looked at together first.

    A finite sum has finite terms.
    """
    values = reply.log_probs
    are_finite = set(map(type, values)) == _FLOAT and math.isfinite(sum(values))
    if are_finite and max(values) <= LOG_PROB_SLACK:
        return None
    for position, value in enumerate(reply.log_probs):
        if type(value) is not float or not math.isfinite(value) or value > LOG_PROB_SLACK:
            return f"log-prob {value!r} at position {position}"
    return None
