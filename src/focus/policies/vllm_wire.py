"""What vLLM's token endpoints take and give, as values; no network here.

Two endpoints, one meaning: ``/v1/completions``, which every server has, and
``/inference/v1/generate``, which is behind ``--enable-scale-out`` and names the weights of
each reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from focus.errors import Aborted, CorruptReply, FatalError
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

__all__ = ("COMPLETIONS", "GENERATE", "Asked", "Endpoint")

_NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Sent with every request: a model's generation config has preferences, the law must be ours."""

_MINUS_INFINITY = -9999.0
"""What /v1/completions writes for it, since JSON has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, and what its reply is checked against.

    Attributes:
        prefix, sampling, max_tokens: what is sampled; `max_tokens` in place of the sampling's.
        rid: the request's name on the wire.
        name: the request's name in FOCUS.
        model: which of the served models; None is the first.
        version: weights to assume, whatever the reply says; None reads them from it.
    """

    prefix: TokenIds
    sampling: Sampling
    max_tokens: int
    rid: str
    name: str
    model: str | None = None
    version: str | None = None


class Endpoint(Protocol):
    """One way to ask for exact tokens.

    Attributes:
        path: where requests are posted.
    """

    @property
    def path(self) -> str: ...

    def payload(self, asked: Asked) -> dict[str, Any]:
        """The body of one request: exact ids in, log-probs of the sampled ids asked for."""
        ...

    def read(self, body: Any, asked: Asked) -> Generation:
        """The generation in a 200 reply. Text is never read: it may be cut where ids are not.

        Raises:
            Aborted: the server ended the request early, however little else the reply holds.
            CorruptReply: another type where a field is read, a missing or impossible value,
                counts that disagree, another prompt or request, or a stop that no id shows.
            FatalError: the weights changed inside the reply.
            RequestError: an error object with an HTTP code of its own.
        """
        ...


def _law(asked: Asked) -> dict[str, Any]:
    """The settings of one request, by vLLM's names."""
    temperature, top_p, top_k = asked.sampling.law
    law: dict[str, Any] = {
        "max_tokens": asked.max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": 0 if top_k is None else top_k,
        **_NEUTRAL,
        "logprobs": 0,
    }
    if asked.sampling.stop:
        law["stop_token_ids"] = list(asked.sampling.stop)
    if asked.sampling.seed is not None:
        law["seed"] = asked.sampling.seed
    return law


class _Completions:
    """``/v1/completions`` with ids; `model` of a reply stands for its weights.

    >>> asked = Asked(prefix=(1, 2), sampling=Sampling(seed=7), max_tokens=3, rid="r", name="r")
    >>> payload = COMPLETIONS.payload(asked)
    >>> payload["prompt"], payload["top_k"], payload["logprobs"]
    ([1, 2], 0, 0)
    """

    path = "/v1/completions"

    def payload(self, asked: Asked) -> dict[str, Any]:
        named = {} if asked.model is None else {"model": asked.model}
        told = {"request_id": asked.rid, "return_token_ids": True}
        return {**named, **told, "prompt": list(asked.prefix), **_law(asked)}

    def read(self, body: Any, asked: Asked) -> Generation:
        choice = _choice(body, asked)
        return _generation(
            body,
            choice,
            asked,
            echo=body.get("id"),
            prompt=choice.get("prompt_token_ids"),
            values=_column(choice, "token_logprobs"),
            version=body.get("model"),
        )


class _Generate:
    """``/inference/v1/generate``: no text at all, and each reply names its weights.

    >>> asked = Asked(prefix=(1, 2), sampling=Sampling(seed=7), max_tokens=3, rid="r", name="r")
    >>> payload = GENERATE.payload(asked)
    >>> payload["token_ids"], payload["sampling_params"]["seed"]
    ([1, 2], 7)
    """

    path = "/inference/v1/generate"

    def payload(self, asked: Asked) -> dict[str, Any]:
        named = {} if asked.model is None else {"model": asked.model}
        told = {"request_id": asked.rid, "return_token_ids": True}
        law = {**_law(asked), "detokenize": False}
        return {**named, **told, "token_ids": list(asked.prefix), "sampling_params": law}

    def read(self, body: Any, asked: Asked) -> Generation:
        choice = _choice(body, asked)
        content = _column(choice, "content")
        return _generation(
            body,
            choice,
            asked,
            echo=body.get("request_id"),
            prompt=body.get("prompt_token_ids"),
            values=[_paired(entry, choice, place) for place, entry in enumerate(content)],
            version=_one_version(choice, asked),
        )


COMPLETIONS: Endpoint = _Completions()
GENERATE: Endpoint = _Generate()


def _choice(body: Any, asked: Asked) -> Mapping[str, Any]:
    """The only choice of a reply that was not aborted."""
    if not isinstance(body, Mapping):
        raise CorruptReply(f"the reply is {shown(body)}, not an object")
    if "choices" not in body:
        raise error_object(body, missing="choices")
    choices = body["choices"]
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise CorruptReply(f"choices is {shown(choices)}, not a list of one object")
    if choices[0].get("finish_reason") == "abort":
        raise Aborted("the server aborted the request", request_id=asked.name)
    return choices[0]


def _column(choice: Mapping[str, Any], name: str) -> list[Any]:
    """One list of the choice's log-probs."""
    told = choice.get("logprobs")
    column = told.get(name) if isinstance(told, Mapping) else None
    if not isinstance(column, list):
        raise CorruptReply(f"logprobs is {shown(told)}; there is no list {name!r}")
    return column


def _paired(entry: Any, choice: Mapping[str, Any], position: int) -> Any:
    """The log-prob of an entry, which must be that of the id at its place."""
    ids = choice.get("token_ids")
    if not isinstance(entry, Mapping):
        raise CorruptReply(f"entry {shown(entry)} at position {position} is no log-prob")
    if isinstance(ids, list) and position < len(ids) and entry.get("token_id") != ids[position]:
        raise CorruptReply(
            f"the log-prob at position {position} is of id {shown(entry.get('token_id'))}, "
            f"the id is {shown(ids[position])}"
        )
    return entry.get("logprob")


def _one_version(choice: Mapping[str, Any], asked: Asked) -> Any:
    """The weights of all ids of a reply; None where it names none."""
    spans = choice.get("weight_versions")
    if spans is None:
        return None
    if not isinstance(spans, list) or not all(isinstance(span, Mapping) for span in spans):
        raise CorruptReply(f"weight_versions is {shown(spans)}")
    told = [span.get("version") for span in spans]
    if len(told) > 1:
        raise FatalError(
            f"weights changed inside one reply: {', '.join(map(shown, told[:4]))}",
            request_id=asked.name,
        )
    return told[0] if told else None


def _generation(
    body: Mapping[str, Any],
    choice: Mapping[str, Any],
    asked: Asked,
    *,
    echo: Any,
    prompt: Any,
    values: Sequence[Any],
    version: Any,
) -> Generation:
    finish = choice.get("finish_reason")
    if finish not in ("stop", "length"):
        raise CorruptReply(f"finish reason {shown(finish)}")
    _check_request(echo, prompt, asked)
    ids, log_probs = _columns(choice.get("token_ids"), values)
    usage = body.get("usage")
    counts = usage if isinstance(usage, Mapping) else {}
    check_count(counts, "completion_tokens", len(ids))
    check_count(counts, "prompt_tokens", len(asked.prefix))
    if finish == "stop":
        check_stop(choice.get("stop_reason"), ids)
    details = counts.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return Generation(
        ids=ids,
        log_probs=log_probs,
        finish=FinishReason(finish),
        version=_version(version, asked),
        request_id=asked.name,
        cached_tokens=read_cached(cached, len(asked.prefix)),
    )


def _check_request(echo: Any, prompt: Any, asked: Asked) -> None:
    """vLLM puts a word of its own before the id, and sends the prompt back."""
    if echo is not None and not (isinstance(echo, str) and echo.endswith(asked.rid)):
        raise CorruptReply(f"this is the reply to request {shown(echo)}, not to {asked.rid!r}")
    if prompt is not None and prompt != list(asked.prefix):
        raise CorruptReply(f"the server read another prompt: {shown(prompt)}")


def _columns(ids: Any, values: Sequence[Any]) -> tuple[TokenIds, LogProbs]:
    if not isinstance(ids, list):
        raise CorruptReply(
            f"token_ids is {shown(ids)}; there are no exact ids (vLLM >= 0.10.2 returns them)"
        )
    if len(ids) != len(values):
        raise CorruptReply(f"{len(values)} log-probs for {len(ids)} ids")
    log_probs = tuple(read_log_prob(value, place) for place, value in enumerate(values))
    if log_probs and min(log_probs) <= _MINUS_INFINITY:
        place = log_probs.index(min(log_probs))
        raise CorruptReply(f"log-prob {log_probs[place]} at position {place} stands for none")
    return tuple(read_token(token, place) for place, token in enumerate(ids)), log_probs


def _version(told: Any, asked: Asked) -> str:
    if asked.version is not None:
        return asked.version
    if isinstance(told, str) and 0 < len(told) <= 200:
        return told
    raise CorruptReply(
        "the reply names no weights; pass version= to vouch for the server's"
        if told is None
        else f"the weights are {shown(told)}"
    )
