"""One running request and the counters of all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from focus.policies._engine.prefix_cache import Held
from focus.policies._engine.sampler import Draw, Law
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("Counters", "Request")


@dataclass(eq=False, slots=True)
class Request:
    """What was asked, and how far it has come.

    Attributes:
        prefix: ids to continue.
        law: distribution to sample from.
        max_tokens: most ids to sample.
        ends: ids that complete the reply.
        uniforms: this request's own stream.
        request_id: name it reports.
        version: weights it runs on; set when it is submitted.
        future: where the reply goes.
        cached: prefix tokens whose keys and values were reused.
        pieces: those keys and values, until they are copied to its slot.
        logits: what the model gave after the prefix, where all of it was cached.
        fed: tokens whose keys and values are in its slot.
        is_settled: its caller has been answered, or was found to be gone.
    """

    prefix: TokenIds
    law: Law
    max_tokens: int
    ends: frozenset[int]
    uniforms: random.Random
    request_id: str
    version: str = ""
    future: Future[Generation] = field(default_factory=Future)
    cached: int = 0
    pieces: list[torch.Tensor] = field(default_factory=list)
    logits: torch.Tensor | None = None
    fed: int = 0
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    is_settled: bool = False

    def take(self, held: Held) -> None:
        """Reuse what the cache holds; without logits the last id must be fed all the same."""
        self.logits = held.logits
        self.cached = held.length
        self.pieces = held.pieces
        if held.logits is None and held.length == len(self.prefix):
            self.cached -= 1
            self.pieces[-1] = self.pieces[-1][..., :-1, :]

    def accept(self, draw: Draw) -> None:
        """Append one sampled id."""
        self.ids.append(draw.token)
        self.log_probs.append(draw.log_prob)

    @property
    def finish(self) -> FinishReason | None:
        """Why it is complete, or None while it runs."""
        if self.ids and self.ids[-1] in self.ends:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.ids) >= self.max_tokens else None

    @property
    def fed_ids(self) -> TokenIds:
        """The tokens behind the keys and values in its slot."""
        return (self.prefix + tuple(self.ids))[: self.fed]

    def suffix(self) -> Sequence[int]:
        """Ids to feed next: the uncached prefix, later the last sampled id."""
        return self.ids[-1:] if self.ids else self.prefix[self.cached :]

    def reply(self) -> Generation:
        """The finished reply."""
        finish = self.finish
        assert finish is not None
        return Generation(
            ids=tuple(self.ids),
            log_probs=tuple(self.log_probs),
            finish=finish,
            version=self.version,
            request_id=self.request_id,
            cached_tokens=self.cached,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Totals since the policy was made.

    Attributes:
        requests: replies given.
        cancelled: requests whose caller went away.
        prefill_tokens: prefix tokens computed.
        cached_tokens: prefix tokens whose keys and values were reused.
        generated_tokens: ids sampled, those of cancelled requests included.
        evicted_tokens: tokens dropped from the prefix cache for room.
        passes: forward passes.
    """

    requests: int = 0
    cancelled: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    evicted_tokens: int = 0
    passes: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of prefix tokens that were reused; 0 before any request.

        >>> Counters(prefill_tokens=25, cached_tokens=75).hit_rate
        0.75
        """
        total = self.prefill_tokens + self.cached_tokens
        return self.cached_tokens / total if total else 0.0
