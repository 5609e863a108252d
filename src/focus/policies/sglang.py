"""A policy behind an SGLang server, or behind a router in front of several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from focus.errors import RequestError
from focus.policies.base import Ask, RequestTag
from focus.policies.http import JsonServer
from focus.policies.served import ProbeReport, ServedPolicy, plain_key
from focus.policies.sglang_server import SGLangServer
from focus.policies.sglang_wire import (
    Asked,
    generate_payload,
    group_payload,
    read_group,
    read_reply,
)
from focus.tokens import Generation, TokenIds

__all__ = ("ProbeReport", "SGLangPolicy")


class SGLangPolicy(ServedPolicy):
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

    processed_by = "Serve without SGLANG_RETURN_ORIGINAL_LOGPROB"

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
        super().__init__(
            url,
            tokenizer=tokenizer,
            model=model,
            version=version,
            context_limit=context_limit,
            train_temperature=train_temperature,
            api_key=api_key,
            profile=profile,
            log_probs=log_probs,
            client=client,
        )
        self._together = together
        self._server = SGLangServer(self._transport, abort_at_workers=abort_at_workers)

    async def _sample(self, prefix: TokenIds, ask: Ask, *, max_tokens: int) -> Generation:
        payload, asked = self._request(prefix, ask, max_tokens=max_tokens)
        return read_reply(await self._server.generate(payload, headers=_routing(ask.tag)), asked)

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
        requests = [
            self._request(prefix, ask, max_tokens=self._room(prefix, ask.sampling.max_tokens))
            for ask in asks
        ]
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

    def _request(
        self, prefix: TokenIds, ask: Ask, *, max_tokens: int
    ) -> tuple[dict[str, Any], Asked]:
        """The body of one request, and what its reply is checked against."""
        rid = self._rid(ask.tag)
        payload = generate_payload(prefix, ask.sampling, max_tokens=max_tokens, rid=rid)
        name = ask.tag.request if ask.tag is not None else rid
        return payload, Asked(rid, name, len(prefix), self._pinned)

    async def _told_version(self) -> str | None:
        return await self._server.weight_version()

    async def _told_context(self) -> int | None:
        return await self._server.context_limit()

    async def _told_model(self) -> str:
        return str((await self._server.model_info()).get("model_path", ""))


def _routing(tag: RequestTag | None) -> dict[str, str]:
    """The header by which a router sends one tree's requests to one worker's cache."""
    return {} if tag is None else {"x-smg-routing-key": plain_key(tag.tree)}
