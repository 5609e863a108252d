"""SGLang's request and reply bodies as values; no server here.

What a request asks for is done exactly or refused. Fields that only shape text or logs are
ignored, as are unknown ones outside ``sampling_params``: routers add their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus.errors import ConfigError
from focus.sampling import Sampling
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("BadRequest", "Job", "Work", "aborted_reply", "error_body", "read_request", "reply_body")

_DEFAULT_MAX_TOKENS = 128
_MOST_COPIES = 1024
_HONOURED = {"max_new_tokens", "temperature", "top_p", "top_k", "n", "stop_token_ids"} | {
    "sampling_seed"
}
_ABOUT_TEXT = {"skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"}
_NEUTRAL: Mapping[str, Any] = {
    "min_p": 0,
    "min_new_tokens": 0,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "ignore_eos": False,
    "stop": [],
}
"""Known settings that this server cannot change; these values ask for no change."""
_UNASKED: Mapping[str, Any] = {"stream": False, "top_logprobs_num": 0, "logprob_start_len": -1}


class BadRequest(ValueError):
    """The request cannot be served; the text is the answer's message."""


@dataclass(frozen=True, slots=True)
class Job:
    """One reply to sample.

    Attributes:
        rid: its name, unique by what the client says.
        prefix: ids to continue.
        sampling: how.
    """

    rid: str
    prefix: TokenIds
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Work:
    """All of one request.

    Attributes:
        jobs: prompts × copies, copies of one prompt side by side.
        is_list: whether the answer is a list, though it may hold one reply.
        wants_log_probs: whether replies carry ids with their log-probs.
    """

    jobs: tuple[Job, ...]
    is_list: bool
    wants_log_probs: bool


def read_request(body: Any) -> Work:
    """The work that a /generate body asks for.

    Raises:
        BadRequest: it is none, or asks for what this server does not do.

    >>> work = read_request({"input_ids": [1, 2], "sampling_params": {"n": 2}, "rid": "r"})
    >>> [job.rid for job in work.jobs], work.jobs[0].sampling.max_tokens, work.is_list
    (['r_0', 'r_1'], 128, True)
    """
    if not isinstance(body, Mapping):
        raise BadRequest("the body must be a JSON object")
    for name, neutral in _UNASKED.items():
        if body.get(name) not in (None, neutral):
            raise BadRequest(f"{name}={body[name]!r} is not supported by this server")
    prompts, is_batch = _prompts(body.get("input_ids"))
    settings = _per_prompt(body.get("sampling_params"), len(prompts), is_batch)
    counts = [_integer(params, "n", 1, least=1) for params in settings]
    if len(prompts) * max(counts) > _MOST_COPIES:
        raise BadRequest(f"more than {_MOST_COPIES} replies in one request")
    rids = iter(_rids(body.get("rid"), sum(counts), is_list=is_batch or max(counts) > 1))
    jobs = tuple(
        Job(next(rids), prompt, _sampling(params, copy))
        for prompt, params, count in zip(prompts, settings, counts, strict=True)
        for copy in range(count)
    )
    is_list = is_batch or len(jobs) > 1
    return Work(jobs, is_list, wants_log_probs=bool(body.get("return_logprob")))


def reply_body(job: Job, reply: Generation, text: str, *, wants_log_probs: bool) -> dict[str, Any]:
    """A finished reply as SGLang sends it."""
    meta: dict[str, Any] = {
        "id": job.rid,
        "finish_reason": _finish(reply),
        "prompt_tokens": len(job.prefix),
        "completion_tokens": len(reply.ids),
        "cached_tokens": reply.cached_tokens or 0,
        "weight_version": reply.version,
    }
    if wants_log_probs:
        pairs = zip(reply.log_probs, reply.ids, strict=True)
        meta["output_token_logprobs"] = [[log_prob, token, None] for log_prob, token in pairs]
    return {"text": text, "output_ids": list(reply.ids), "meta_info": meta}


def aborted_reply(job: Job, *, version: str) -> dict[str, Any]:
    """What the caller of an aborted request gets, with status 200."""
    finish = {"type": "abort", "message": "aborted on request"}
    meta = {"id": job.rid, "finish_reason": finish, "weight_version": version}
    return {"text": "", "output_ids": [], "meta_info": meta}


def error_body(message: str) -> dict[str, Any]:
    """An error as SGLang words it."""
    return {"error": {"message": message}}


def _finish(reply: Generation) -> dict[str, Any]:
    if reply.finish is FinishReason.STOP:
        return {"type": "stop", "matched": reply.ids[-1]}
    return {"type": "length", "length": len(reply.ids)}


def _prompts(ids: Any) -> tuple[list[TokenIds], bool]:
    if not isinstance(ids, list) or not ids:
        raise BadRequest("input_ids must be a list of ids, or a list of such lists; text is not")
    is_batch = isinstance(ids[0], list)
    prompts = ids if is_batch else [ids]
    for prompt in prompts:
        if not isinstance(prompt, list) or not prompt or set(map(type, prompt)) != {int}:
            raise BadRequest("input_ids must hold whole numbers only, at least one a prompt")
    return [tuple(prompt) for prompt in prompts], is_batch


def _per_prompt(params: Any, count: int, is_batch: bool) -> list[Mapping[str, Any]]:
    each = params if is_batch and isinstance(params, list) else [params or {}] * count
    if len(each) != count or not all(isinstance(one, Mapping) for one in each):
        raise BadRequest("sampling_params must be an object, or one object a prompt")
    return list(each)


def _rids(given: Any, count: int, *, is_list: bool) -> Sequence[str]:
    if given is None:
        return [secrets.token_hex(16) for _ in range(count)]
    if isinstance(given, str):
        return [f"{given}_{index}" for index in range(count)] if is_list else [given]
    if isinstance(given, list) and len(given) == count and all(isinstance(r, str) for r in given):
        return given
    raise BadRequest("rid must be text, or one text a reply")


def _sampling(params: Mapping[str, Any], copy: int) -> Sampling:
    """Settings of one copy; seeded copies draw from neighbouring seeds."""
    for name, value in params.items():
        neutral = _NEUTRAL.get(name)
        if name in _HONOURED or name in _ABOUT_TEXT or value is None or value == neutral:
            continue
        raise BadRequest(f"sampling_params.{name}={value!r} is not supported by this server")
    top_k = _integer(params, "top_k", -1, least=-1)
    seed = params.get("sampling_seed")
    try:
        return Sampling(
            temperature=_number(params, "temperature", 1.0),
            top_p=_number(params, "top_p", 1.0),
            top_k=None if top_k == -1 else top_k,
            max_tokens=_integer(params, "max_new_tokens", _DEFAULT_MAX_TOKENS, least=1),
            stop=_stop(params.get("stop_token_ids")),
            seed=None if seed is None else _integer(params, "sampling_seed", 0, least=0) + copy,
        )
    except ConfigError as error:
        raise BadRequest(str(error)) from error


def _stop(ids: Any) -> tuple[int, ...] | None:
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise BadRequest("stop_token_ids must be a list of ids")
    return tuple(ids)


def _integer(params: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    value = params.get(name)
    value = default if value is None else value
    if type(value) is not int or value < least:
        raise BadRequest(f"sampling_params.{name} must be a whole number >= {least}")
    return value


def _number(params: Mapping[str, Any], name: str, default: float) -> float:
    value = params.get(name)
    value = default if value is None else value
    if type(value) not in (int, float):
        raise BadRequest(f"sampling_params.{name} must be a number")
    return float(value)
