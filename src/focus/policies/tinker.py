"""A model that Tinker serves: exact ids in, exact ids and log-probs out, through its SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from focus._extras import require
from focus.errors import Aborted, CorruptReply, Refused, RequestError
from focus.policies.base import RequestTag
from focus.policies.codec import Codec, Coded
from focus.policies.tinker_faults import classify_tinker
from focus.sampling import Sampling
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("TinkerPolicy",)

_MOST_SAMPLES = 32
_FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class TinkerPolicy(Coded):
    """Samples from one snapshot that Tinker serves; a :class:`focus.policies.base.Policy`.

    A sampling client stands for fixed weights, so `version` never changes: a round that
    has new weights has a new policy. Siblings, requests for the same prefix that come in
    the same turn of the event loop, are sent as one call for several samples; its prompt is
    computed once. They share the first one's seed, and differ.

    Waiting, backing off and sending again is the SDK's work. What it gives up on is typed:
    a failed request may be tried again, a refused one not, and a service that does not know
    this client any more ends the run.

    Args:
        sampling_client: a ``tinker.SamplingClient``; borrowed.
        version: name of its weights.
        tokenizer: the model's own; None asks the client, which may download it.
        context_limit: most tokens of prompt plus reply, as `served_model` of
            focus.policies.tinker_models tells.
        profile: how messages become prompt ids.

    Raises:
        ConfigError: no such profile.
        MissingExtra: the SDK is not installed.
    """

    train_temperature: float = 1.0
    """Tinker's learner has no other: it takes log-probs at temperature 1."""

    def __init__(
        self,
        sampling_client: Any,
        *,
        version: str,
        tokenizer: Any = None,
        context_limit: int | None = None,
        profile: str = "token_chunk",
    ) -> None:
        self._tinker = require("tinker", extra="tinker")
        self._client = sampling_client
        self._version = version
        self._context_limit = context_limit
        known = sampling_client.get_tokenizer() if tokenizer is None else tokenizer
        self._codec = Codec.of(tokenizer=known, model=None, profile=profile)
        self._open: dict[Any, _Call] = {}

    @property
    def version(self) -> str:
        """The weights of the sampling client."""
        return self._version

    @property
    def context_limit(self) -> int | None:
        """Most tokens of prompt plus reply; None when unknown."""
        return self._context_limit

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        """Sample one continuation of `prefix`. Cancelling gives it up.

        Raises:
            Refused: the service takes no such request, or it does not fit the context.
            CorruptReply: another number of samples, no log-probs, an unknown ending.
            FatalError: wrong key, unknown model or session, a service out of reach.
            TransientError: the service failed at it.
        """
        self._check_room(prefix, sampling)
        loop = asyncio.get_running_loop()
        wanted = (tuple(prefix), *sampling.law, sampling.max_tokens, sampling.stop, id(loop))
        call = self._open.get(wanted)
        if call is None or len(call.waiting) == _MOST_SAMPLES:
            call = self._open[wanted] = _Call(tuple(prefix), sampling)
            loop.call_soon(self._send, wanted, call)
        place: asyncio.Future[Generation] = loop.create_future()
        call.waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            call.leave()
            raise

    def _check_room(self, prefix: TokenIds, sampling: Sampling) -> None:
        if not prefix:
            raise Refused("the prefix is empty")
        new, limit = sampling.max_tokens or 1, self._context_limit
        if limit is not None and len(prefix) + new > limit:
            raise Refused(
                f"{len(prefix)} prefix tokens and {new} new ones do not fit into the context "
                f"of {limit}"
            )

    def _send(self, wanted: Any, call: _Call) -> None:
        """At the end of the loop's turn: whoever has joined by now is served by one call."""
        if self._open.get(wanted) is call:
            del self._open[wanted]
        if call.is_left:
            return
        loop = asyncio.get_running_loop()
        try:
            found = self._sample(call.prefix, call.sampling, count=len(call.waiting))
        except Exception as error:
            call.fail(classify_tinker(error))
            return
        call.future = found
        found.add_done_callback(lambda done: loop.call_soon_threadsafe(self._deliver, call, done))

    def _sample(self, prefix: TokenIds, sampling: Sampling, *, count: int) -> Future[Any]:
        temperature, top_p, top_k = sampling.law
        future: Future[Any] = self._client.sample(
            self._tinker.ModelInput.from_ints(list(prefix)),
            count,
            self._tinker.SamplingParams(
                max_tokens=self._most_new(prefix, sampling),
                seed=sampling.seed,
                stop=self._stop(sampling),
                temperature=temperature,
                top_p=top_p,
                top_k=-1 if top_k is None else top_k,
            ),
        ).future()
        return future

    def _most_new(self, prefix: TokenIds, sampling: Sampling) -> int | None:
        if sampling.max_tokens is None and self._context_limit is not None:
            return self._context_limit - len(prefix)
        return sampling.max_tokens

    def _stop(self, sampling: Sampling) -> list[int] | None:
        """A list replaces the model's own end at Tinker, so the end is put into it."""
        if not sampling.stop:
            return None
        end = self.tokenizer.eos_token_id
        return sorted({*sampling.stop, *(() if end is None else (end,))})

    def _deliver(self, call: _Call, done: Future[Any]) -> None:
        try:
            replies = self._replies(call, done.result())
        except CancelledError:
            call.fail(Aborted("the SDK gave the request up"))
        except Exception as error:
            call.fail(classify_tinker(error))
        else:
            call.deliver(replies)

    def _replies(self, call: _Call, response: Any) -> list[Generation]:
        sequences = response.sequences
        if len(sequences) != len(call.waiting):
            raise CorruptReply(f"{len(sequences)} samples where {len(call.waiting)} were asked for")
        hits = response.prompt_cache_hit_tokens or 0
        cached = [hits, *[len(call.prefix)] * (len(sequences) - 1)]
        return list(map(partial(_generation, version=self._version), sequences, cached))

    async def log_probs(self, prefix: TokenIds, ids: TokenIds) -> tuple[float, ...]:
        """Log-probs of `ids` after `prefix`, recomputed in one pass, at temperature 1.

        Raises:
            RequestError: as `generate`.
        """
        whole = self._tinker.ModelInput.from_ints([*prefix, *ids])
        try:
            found = await self._client.compute_logprobs(whole, prompt_logprobs_last_n=len(ids))
        except Exception as error:
            raise classify_tinker(error) from error
        values = tuple(found[-len(ids) :])
        if len(values) != len(ids) or None in values:
            raise CorruptReply(f"log-probs {values} for {len(ids)} ids")
        return values


@dataclass(eq=False, slots=True)
class _Call:
    """One call for as many samples as there are waiting, handed out in order of arrival."""

    prefix: TokenIds
    sampling: Sampling
    waiting: list[asyncio.Future[Generation]] = field(default_factory=list)
    future: Future[Any] | None = None

    @property
    def is_left(self) -> bool:
        """Nobody waits any more."""
        return all(place.cancelled() for place in self.waiting)

    def leave(self) -> None:
        """One of the waiting was cancelled; the last one takes the call with it."""
        if self.is_left and self.future is not None:
            self.future.cancel()

    def fail(self, error: RequestError) -> None:
        """Each of the waiting gets an error of its own: callers add their place to it."""
        for place in self.waiting:
            if not place.done():
                own = type(error)(error.message, **error.where)
                own.__cause__ = error.__cause__ or error
                place.set_exception(own)

    def deliver(self, replies: Sequence[Generation]) -> None:
        for place, reply in zip(self.waiting, replies, strict=True):
            if not place.done():
                place.set_result(reply)


def _generation(sequence: Any, cached_tokens: int, *, version: str) -> Generation:
    if sequence.logprobs is None:
        raise CorruptReply("the reply has no log-probs")
    finish = _FINISH.get(sequence.stop_reason)
    if finish is None:
        raise CorruptReply(f"unknown stop reason {sequence.stop_reason!r}")
    return Generation(
        ids=tuple(sequence.tokens),
        log_probs=tuple(sequence.logprobs),
        finish=finish,
        version=version,
        request_id=sequence.sequence_id,
        cached_tokens=cached_tokens,
    )
