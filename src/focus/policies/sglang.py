"""A policy behind an SGLang server, or behind a router in front of several."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from focus.errors import ConfigError, CorruptReply, Refused, RequestError
from focus.policies.base import Ask, RequestTag
from focus.policies.codec import Codec
from focus.policies.convention import LogProbConvention, probe_convention
from focus.policies.http import HttpServer, JsonServer
from focus.policies.sglang_server import SGLangServer
from focus.policies.sglang_wire import (
    Asked,
    generate_payload,
    group_payload,
    read_group,
    read_reply,
)
from focus.problem import Message
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

__all__ = ("ProbeReport", "SGLangPolicy")

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


class SGLangPolicy:
    """Samples from any SGLang server or router; a :class:`focus.policies.base.Policy`.

    Ids go in and come out: replies are read from ``meta_info.output_token_logprobs`` only.
    Each request carries an id of its own, which the reply must echo, and its tree as the
    router's cache key. When a caller goes away the server is told to abort, because it
    would sample on otherwise.

    With top-p or top-k set, SGLang reports log-probs from before those cuts: such replies
    are good for evaluation only, and a `Collector` refuses to train on them.

    Unless `version` is given, `refresh` reads it from the server before each tree; a reply
    from other weights then fails the tree (docs/concepts/exact-tokens.md).

    Args:
        url: address of the server or router, or a `JsonServer` that reaches it.
        tokenizer: the served model's tokenizer; either this or `model`.
        model: "builtin", "smollm2", a model folder or a cached hub name to load it from.
        version: weights that every reply must report. A server that reports none needs it.
        context_limit: most tokens of prompt plus reply; None when unknown (`probe` asks).
        train_temperature: what the learner divides logits by.
        api_key: bearer token for the server.
        profile: how messages become prompt ids.
        log_probs: what the server is declared to report: "processed" or "raw" (SGLang with
            SGLANG_RETURN_ORIGINAL_LOGPROB); `probe` finds out.
        client: an httpx client to borrow; None makes one on first use.
        together: send siblings as one request with a list of prefixes. The server itself takes
            lists; a router in front of it may refuse them, hence off.
        abort_at_workers: the address is a router, which passes no aborts on: ask it for its
            workers and tell them. They are hosts of the router's choice, hence off.

    Raises:
        ConfigError: settings that cannot be honoured: not one of tokenizer and model, raw
            log-probs with a temperature other than 1, an address that is none.
    """

    def __init__(
        self,
        url: str | JsonServer,
        *,
        tokenizer: Any = None,
        model: str | Path | None = None,
        version: str | None = None,
        context_limit: int | None = None,
        train_temperature: float = 1.0,
        api_key: str | None = None,
        profile: str = "token_chunk",
        log_probs: str = "processed",
        client: httpx.AsyncClient | None = None,
        together: bool = False,
        abort_at_workers: bool = False,
    ) -> None:
        self._together = together
        _check_limits(context_limit, train_temperature)
        self._convention = _declared(log_probs, train_temperature)
        self._transport = (
            HttpServer(url, api_key=api_key, client=client) if isinstance(url, str) else url
        )
        self._server = SGLangServer(self._transport, abort_at_workers=abort_at_workers)
        self._codec = Codec.of(tokenizer=tokenizer, model=model, profile=profile)
        self._pinned = version
        self._version = version or ""
        self._context_limit = context_limit
        self._train_temperature = train_temperature
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
    def vocab_size(self) -> int:
        """Ids lie in [0, vocab_size)."""
        return self._codec.vocab_size

    @property
    def tokenizer_hash(self) -> str:
        """Names the id ↔ text mapping."""
        return self._codec.tokenizer_hash

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; hold ``focus.rendering.lock_of(tokenizer)`` to use it elsewhere."""
        return self._codec.tokenizer

    @property
    def log_probs(self) -> LogProbConvention:
        """What the server's log-probs are: declared, or found by `probe`."""
        return self._convention

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        """Prompt ids of a conversation, through this policy's profile."""
        return self._codec.render(messages, tools)

    def continuation(self, messages: Sequence[Message], *, closed: bool) -> TokenIds:
        """Ids between a reply and the next one, through this policy's profile."""
        return self._codec.continuation(messages, closed=closed)

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """Text of `ids` in one decode; special tokens dropped unless kept."""
        return self._codec.decode(ids, keep_special=keep_special)

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
        payload, asked = self._request(prefix, Ask(sampling, tag))
        try:
            return read_reply(await self._server.generate(payload, headers=_routing(tag)), asked)
        except RequestError as error:
            fault = self._transport.cleaned(error)
        raise fault

    @property
    def samples_together(self) -> bool:
        """Siblings go out as one request; `together` says so."""
        return self._together

    async def generate_group(
        self, prefix: TokenIds, asks: Sequence[Ask]
    ) -> Sequence[Generation | RequestError]:
        """Continuations of one prefix by one request; each has its own id, seed and check.

        Raises:
            RequestError: as `generate`, for all of them.
        """
        requests = [self._request(prefix, ask) for ask in asks]
        payload = group_payload([payload for payload, _ in requests])
        try:
            body = await self._server.generate(payload, headers=_routing(asks[0].tag))
            found = read_group(body, [asked for _, asked in requests])
            return [self._told(each) for each in found]
        except RequestError as error:
            fault = self._transport.cleaned(error)
        raise fault

    def _told(self, answer: Generation | RequestError) -> Generation | RequestError:
        return self._transport.cleaned(answer) if isinstance(answer, RequestError) else answer

    def _request(self, prefix: TokenIds, ask: Ask) -> tuple[dict[str, Any], Asked]:
        """The body of one request, and what its reply is checked against."""
        max_tokens = self._room(prefix, ask.sampling.max_tokens)
        rid = self._rid(ask.tag)
        payload = generate_payload(prefix, ask.sampling, max_tokens=max_tokens, rid=rid)
        name = ask.tag.request if ask.tag is not None else rid
        return payload, Asked(rid, name, len(prefix), self._pinned)

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

        Asks ``/model_info``, then ``/get_model_info``; where neither says, a one-token
        request does.

        Raises:
            RequestError: the server did not answer.
            ConfigError: it does not name its weights.
        """
        if self._pinned is None:
            told = await self._server.weight_version()
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
            self._context_limit = await self._server.context_limit()
        found = await probe_convention(self, self.render([_PROBE_MESSAGE]))
        if found is not LogProbConvention.UNCLEAR:
            self._convention = _declared(found, self._train_temperature)
        model = (await self._server.model_info()).get("model_path", "")
        return ProbeReport(found, self._version, self._context_limit, str(model))

    async def aclose(self) -> None:
        """Close the client it made; a borrowed one stays open."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def _routing(tag: RequestTag | None) -> dict[str, str]:
    """The header by which a router sends one tree's requests to one worker's cache."""
    if tag is None:
        return {}
    is_plain = tag.tree.isascii() and tag.tree.isprintable() and 0 < len(tag.tree) <= 200
    key = tag.tree if is_plain else hashlib.sha256(tag.tree.encode()).hexdigest()
    return {"x-smg-routing-key": key}


def _check_limits(context_limit: int | None, train_temperature: float) -> None:
    if context_limit is not None and context_limit < 2:
        raise ConfigError(f"context_limit must be >= 2, got {context_limit}")
    if not train_temperature > 0:
        raise ConfigError(f"train_temperature must be > 0, got {train_temperature}")


def _declared(log_probs: str, train_temperature: float) -> LogProbConvention:
    """The convention, if a trainer at this temperature can use it."""
    known = [kind.value for kind in LogProbConvention if kind is not LogProbConvention.UNCLEAR]
    if log_probs not in known:
        raise ConfigError(f"log_probs must be one of {', '.join(known)}, got {log_probs!r}")
    convention = LogProbConvention(log_probs)
    if convention is not LogProbConvention.PROCESSED and train_temperature != 1.0:
        raise ConfigError(
            f"the server reports {convention.value} log-probs, not those of the law it samples "
            f"from at temperature {train_temperature:g}; importance ratios would be wrong. "
            "Serve without SGLANG_RETURN_ORIGINAL_LOGPROB, or train at temperature 1."
        )
    return convention
