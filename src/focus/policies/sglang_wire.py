"""What SGLang's /generate takes and gives, as values; no network here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus.errors import Aborted, CorruptReply, RequestError
from focus.policies.reply import (
    check_count,
    check_stop,
    error_object,
    read_cached,
    read_log_prob,
    read_token,
    shown,
)
from focus.sampling import Sampling
from focus.tokens import FinishReason, Generation, LogProbs, TokenIds

__all__ = ("Asked", "generate_payload", "group_payload", "read_group", "read_reply")

_NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Sent with every request: a server may have preferences, and the law must be ours."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reply is checked against.

    Attributes:
        rid: the request's name on the wire.
        name: the request's name in FOCUS.
        prompt_tokens: length of the prefix that was sent.
        version: weights to assume when the server reports none; None refuses such a reply.
    """

    rid: str
    name: str
    prompt_tokens: int
    version: str | None = None


def generate_payload(
    prefix: Sequence[int], sampling: Sampling, *, max_tokens: int, rid: str
) -> dict[str, Any]:
    """The body of one request: exact ids in, log-probs of the sampled ids asked for.

    Log-probs of the prompt are never asked for: from position 0 they would switch the
    server's prefix cache off.

    >>> payload = generate_payload((1, 2), Sampling(seed=7), max_tokens=3, rid="r")
    >>> payload["input_ids"], payload["sampling_params"]["top_k"]
    ([1, 2], -1)
    """
    temperature, top_p, top_k = sampling.law
    params: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": -1 if top_k is None else top_k,
        **_NEUTRAL,
    }
    if sampling.stop:
        params["stop_token_ids"] = list(sampling.stop)
    if sampling.seed is not None:
        params["sampling_seed"] = sampling.seed
    return {
        "rid": rid,
        "input_ids": list(prefix),
        "sampling_params": params,
        "return_logprob": True,
    }


def group_payload(payloads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One body for several requests: their prefixes, settings and names, each a list.

    >>> one = generate_payload((1, 2), Sampling(seed=7), max_tokens=3, rid="r")
    >>> two = generate_payload((1, 2), Sampling(seed=8), max_tokens=3, rid="s")
    >>> group_payload([one, two])["rid"], group_payload([one, two])["input_ids"]
    (['r', 's'], [[1, 2], [1, 2]])
    """
    return {
        "rid": [payload["rid"] for payload in payloads],
        "input_ids": [payload["input_ids"] for payload in payloads],
        "sampling_params": [payload["sampling_params"] for payload in payloads],
        "return_logprob": True,
    }


def read_group(body: Any, asked: Sequence[Asked]) -> list[Generation | RequestError]:
    """The generations in a 200 reply to a group, each with an error of its own where it is bad.

    Raises:
        CorruptReply: not one reply per request.
        RequestError: an error object in place of the list.
    """
    if isinstance(body, Mapping) and "meta_info" not in body:
        raise error_object(body, missing="meta_info")
    if not isinstance(body, list) or len(body) != len(asked):
        raise CorruptReply(f"the reply to {len(asked)} requests is {shown(body)}")
    return [_one_of_group(one, each) for one, each in zip(body, asked, strict=True)]


def _one_of_group(body: Any, asked: Asked) -> Generation | RequestError:
    try:
        return read_reply(body, asked)
    except RequestError as error:
        return error


def read_reply(body: Any, asked: Asked) -> Generation:
    """The generation in a 200 reply, taken from ``meta_info.output_token_logprobs`` alone.

    Text is never read: it may be cut where the ids are not.

    Raises:
        Aborted: the server ended the request early, however little else the reply holds.
        CorruptReply: another type where a field is read, a missing or impossible value,
            counts that disagree, the reply to another request, or a stop that no id shows.
        RequestError: an error object with an HTTP code of its own.
    """
    meta = _meta(body)
    finish = _finish(meta, asked)
    _check_echo(meta, asked)
    ids, log_probs = _pairs(meta)
    check_count(meta, "completion_tokens", len(ids))
    check_count(meta, "prompt_tokens", asked.prompt_tokens)
    if finish is FinishReason.STOP:
        check_stop(meta["finish_reason"].get("matched"), ids)
    return Generation(
        ids=ids,
        log_probs=log_probs,
        finish=finish,
        version=_version(meta, asked),
        request_id=asked.name,
        cached_tokens=read_cached(meta.get("cached_tokens"), asked.prompt_tokens),
    )


def _meta(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise CorruptReply(f"the reply is {shown(body)}, not an object")
    if "meta_info" not in body:
        raise error_object(body, missing="meta_info")
    meta = body["meta_info"]
    if not isinstance(meta, Mapping):
        raise CorruptReply(f"meta_info is {shown(meta)}, not an object")
    return meta


def _finish(meta: Mapping[str, Any], asked: Asked) -> FinishReason:
    reason = meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, Mapping) else None
    if kind == "abort":
        message = str(reason.get("message") or "no reason given")[:500] if reason else ""
        raise Aborted(f"the server aborted the request: {message}", request_id=asked.name)
    if kind not in ("stop", "length"):
        told = f"of type {shown(kind)}" if isinstance(reason, Mapping) else shown(reason)
        raise CorruptReply(f"finish reason {told}")
    return FinishReason(kind)


def _check_echo(meta: Mapping[str, Any], asked: Asked) -> None:
    echoed = meta.get("id", asked.rid)
    if echoed != asked.rid:
        raise CorruptReply(f"this is the reply to request {shown(echoed)}, not to {asked.rid!r}")


def _pairs(meta: Mapping[str, Any]) -> tuple[TokenIds, LogProbs]:
    pairs = meta.get("output_token_logprobs")
    if not isinstance(pairs, list):
        raise CorruptReply(f"output_token_logprobs is {shown(pairs)}; there are no exact ids")
    ids, log_probs = [], []
    for position, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) < 2:
            raise CorruptReply(f"entry {shown(pair)} at position {position} is no [log-prob, id]")
        log_probs.append(read_log_prob(pair[0], position))
        ids.append(read_token(pair[1], position))
    return tuple(ids), tuple(log_probs)


def _version(meta: Mapping[str, Any], asked: Asked) -> str:
    told = meta.get("weight_version", asked.version)
    if (isinstance(told, str) and len(told) <= 200) or type(told) is int:
        return str(told)
    raise CorruptReply(
        "the reply names no weight_version; pass version= to vouch for the server's weights"
        if told is None
        else f"weight_version is {shown(told)}"
    )
