"""What policies of models that are served elsewhere share."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx

from focus._closing import Closing
from focus.errors import ConfigError, CorruptReply, Refused, RequestError
from focus.policies.base import Ask, RequestTag
from focus.policies.codec import Codec, Coded
from focus.policies.convention import LogProbConvention, probe_convention
from focus.policies.http import HttpServer, JsonServer
from focus.problem import Message
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

__all__ = ("ProbeReport", "ServedPolicy", "plain_key")

_PROBE_MESSAGE = Message("user", "Say anything you like.")


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a server says of itself, and what its log-probs were found to be.

    Attributes:
        convention: what its log-probs are at temperatures other than 1.
        version: weights it serves.
        context_limit: most tokens of prompt plus reply; None when it does not say.
        model: path or name of the model; "" when it does not say.
    """

    convention: LogProbConvention
    version: str
    context_limit: int | None
    model: str


class ServedPolicy(Coded, Closing):
    """A :class:`focus.policies.base.Policy` behind HTTP; a backend says how one reply is had.

    Args:
        url: address of the server or router, or a `JsonServer` that reaches it.
        tokenizer: the served model's tokenizer; either this or `model`.
        model: "builtin", "smollm2", a model folder or a cached hub name to load it from.
        version: weights that every reply must report; None reads it before each tree.
        context_limit: most tokens of prompt plus reply; None when unknown (`probe` asks).
        train_temperature: what the learner divides logits by.
        api_key: bearer token for the server.
        profile: how messages become prompt ids.
        log_probs: what the server is declared to report: "processed" or "raw".
        client: an httpx client to borrow; None makes one on first use.

    Raises:
        ConfigError: settings that cannot be honoured: not one of tokenizer and model, raw
            log-probs with a temperature other than 1, an address that is none.
    """

    processed_by: ClassVar[str]
    """How such a server is made to report the log-probs of the law it samples from."""

    def __init__(
        self,
        url: str | JsonServer,
        *,
        tokenizer: Any,
        model: str | Path | None,
        version: str | None,
        context_limit: int | None,
        train_temperature: float,
        api_key: str | None,
        profile: str,
        log_probs: str,
        client: httpx.AsyncClient | None,
    ) -> None:
        _check_limits(context_limit, train_temperature)
        self._train_temperature = train_temperature
        self._convention = self._declared(log_probs)
        self._transport = (
            HttpServer(url, api_key=api_key, client=client) if isinstance(url, str) else url
        )
        self._codec = Codec.of(tokenizer=tokenizer, model=model, profile=profile)
        self._pinned = version
        self._version = version or ""
        self._context_limit = context_limit
        self._nonce = secrets.token_hex(4)
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, version={self._version!r})"

    @property
    def url(self) -> str:
        """The server's address, without credentials."""
        return self._transport.url

    @property
    def version(self) -> str:
        """The weights in use: as given, else as last read; "" before the first `refresh`."""
        return self._version

    @property
    def context_limit(self) -> int | None:
        """Most tokens of prompt plus reply; None when unknown."""
        return self._context_limit

    @property
    def train_temperature(self) -> float:
        """What the learner divides logits by."""
        return self._train_temperature

    @property
    def log_probs(self) -> LogProbConvention:
        """What the server's log-probs are: declared, or found by `probe`."""
        return self._convention

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        """Sample one continuation of `prefix`. Cancelling aborts it on the server too.

        Nothing is clamped: without `max_tokens` the reply may fill the context. There is no
        deadline here; :class:`focus.execution.Execution` sets one.

        Raises:
            Refused: an empty prefix, an id outside the vocabulary, or more tokens asked for
                than the context holds; nothing was sent. Or the server refuses.
            TransientError, Aborted, CorruptReply, FatalError: see `focus.errors`.
        """
        ask = Ask(sampling, tag)
        max_tokens = self._room(prefix, sampling.max_tokens)
        try:
            return await self._sample(prefix, ask, max_tokens=max_tokens)
        except RequestError as error:
            fault = self._transport.cleaned(error)
        raise fault

    @abstractmethod
    async def _sample(self, prefix: TokenIds, ask: Ask, *, max_tokens: int) -> Generation:
        """One request that fits, and its checked reply."""

    @abstractmethod
    async def _told_version(self) -> str | None:
        """The weights that the server says it serves; None when it does not say."""

    @abstractmethod
    async def _told_context(self) -> int | None:
        """Most tokens of prompt plus reply that it takes; None when it does not say."""

    @abstractmethod
    async def _told_model(self) -> str:
        """Path or name of the model; "" when it does not say."""

    def _rid(self, tag: RequestTag | None) -> str:
        """A name that no other request has.

        Engines abort every request whose id starts with the one named, and two collections
        may name theirs alike: the ending makes ids distinct, of fixed shape and no prefix.
        """
        ending = f"{self._nonce}{next(self._numbers):08x}"
        return f"{tag.request}~{ending}" if tag is not None else ending

    def _room(self, prefix: TokenIds, max_tokens: int | None) -> int:
        if not prefix:
            raise Refused("the prefix is empty")
        if not 0 <= min(prefix) <= max(prefix) < self.vocab_size:
            raise Refused(f"the prefix holds an id outside [0, {self.vocab_size})")
        if self._context_limit is None:
            if max_tokens is None:
                raise Refused("neither max_tokens nor the policy's context_limit bounds the reply")
            return max_tokens
        room = self._context_limit - len(prefix)
        if room < (max_tokens or 1):
            raise Refused(
                f"{len(prefix)} prefix tokens and {max_tokens or 1} new ones do not fit into the "
                f"context of {self._context_limit}"
            )
        return max_tokens or room

    async def refresh(self) -> None:
        """Read which weights the server runs now; nothing to do when `version` was given.

        Where it does not say, a request for one token does.

        Raises:
            RequestError: the server did not answer.
            ConfigError: it does not name its weights.
        """
        if self._pinned is None:
            told = await self._told_version()
            self._version = told or await self._version_of_a_reply()

    async def _version_of_a_reply(self) -> str:
        try:
            reply = await self.generate((0,), Sampling(max_tokens=1))
        except CorruptReply as error:
            raise ConfigError(
                f"{self.url} does not say which weights it serves; pass version= ({error})"
            ) from error
        return reply.version

    async def probe(self) -> ProbeReport:
        """Check the server before the first tree; a few requests of one token.

        Reads its weights' version and context limit (where none was given), and finds out
        which log-probs it reports (:mod:`focus.policies.convention`).

        Raises:
            ConfigError: log-probs that a trainer at this temperature cannot use.
            RequestError: the server did not answer.
        """
        await self.refresh()
        if self._context_limit is None:
            self._context_limit = await self._told_context()
        found = await probe_convention(self, self.render([_PROBE_MESSAGE]))
        if found is not LogProbConvention.UNCLEAR:
            self._convention = self._declared(found)
        return ProbeReport(found, self._version, self._context_limit, await self._told_model())

    def _declared(self, log_probs: str) -> LogProbConvention:
        """The convention, if a trainer at this temperature can use it."""
        known = [kind.value for kind in LogProbConvention if kind is not LogProbConvention.UNCLEAR]
        if log_probs not in known:
            raise ConfigError(f"log_probs must be one of {', '.join(known)}, got {log_probs!r}")
        convention = LogProbConvention(log_probs)
        if convention is not LogProbConvention.PROCESSED and self._train_temperature != 1.0:
            raise ConfigError(
                f"the server reports {convention.value} log-probs, not those of the law it "
                f"samples from at temperature {self._train_temperature:g}; importance ratios "
                f"would be wrong. {self.processed_by}, or train at temperature 1."
            )
        return convention

    async def aclose(self) -> None:
        """Close the client it made; a borrowed one stays open."""
        await self._transport.aclose()


def plain_key(text: str) -> str:
    """`text` as a header may carry it: itself, or a digest of what is long or no plain text.

    >>> plain_key("run/0/0/ab"), len(plain_key("läuft"))
    ('run/0/0/ab', 64)
    """
    is_plain = text.isascii() and text.isprintable() and 0 < len(text) <= 200
    return text if is_plain else hashlib.sha256(text.encode()).hexdigest()


def _check_limits(context_limit: int | None, train_temperature: float) -> None:
    if context_limit is not None and context_limit < 2:
        raise ConfigError(f"context_limit must be >= 2, got {context_limit}")
    if not train_temperature > 0:
        raise ConfigError(f"train_temperature must be > 0, got {train_temperature}")
