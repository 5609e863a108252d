"""A policy behind a vLLM server, or behind a router in front of several."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from focus.errors import CorruptReply, FatalError, Refused
from focus.policies.base import Ask, RequestTag
from focus.policies.http import JsonServer
from focus.policies.served import ServedPolicy, plain_key
from focus.policies.vllm_wire import COMPLETIONS, GENERATE, Asked
from focus.tokens import Generation, TokenIds

__all__ = ("OpenAIPolicy",)

_REPLY_BYTES = 2**20
_TOKEN_BYTES = 512
"""A sampled token is some 100 bytes of JSON, its text three times included."""
_PROMPT_BYTES = 16
"""The prompt comes back as ids."""


class OpenAIPolicy(ServedPolicy):
    """Samples from any vLLM server or router; a :class:`focus.policies.base.Policy`.

    Ids go in and come out: replies are read from ``token_ids`` and the log-probs beside them
    only, and must send the prompt's ids back unchanged. Each request carries an id of its
    own, which the reply must echo, and its tree as the session that a router keeps together.
    When a caller goes away its connection closes, at which vLLM aborts.

    vLLM reports log softmax(z) unless it is started with ``--logprobs-mode
    processed_logprobs``; `log_probs` says which, and `probe` finds out. How many prompt
    tokens were cached it tells with ``--enable-prompt-tokens-details``.

    Unless `version` is given, `refresh` reads it before each tree: with `names_weights`
    each reply names the weights that sampled it, otherwise the served model's name stands
    for them (``--served-model-name actor-0007``), and weights that are exchanged under one
    name go unseen.

    Args:
        url: address of the server or router, or a `JsonServer` that reaches it; no ``/v1``.
        served_model: which of the served models or adapters; None is the first.
        names_weights: use ``/inference/v1/generate``, for servers started with
            ``--enable-scale-out``.
        tokenizer: the served model's tokenizer; either this or `model`.
        model: "builtin", "smollm2", a model folder or a cached hub name to load it from.
        version: name of the weights, for servers that tell none; then nothing is asked.
        context_limit: most tokens of prompt plus reply; None when unknown (`probe` asks).
            vLLM cuts what does not fit without a word, and such a reply is refused.
        train_temperature: what the learner divides logits by.
        api_key: bearer token for the server.
        profile: how messages become prompt ids.
        log_probs: what the server is declared to report: "raw", vLLM's default, which is
            right at temperature 1, or "processed".
        client: an httpx client to borrow; None makes one on first use.

    Raises:
        ConfigError: settings that cannot be honoured: not one of tokenizer and model, raw
            log-probs with a temperature other than 1, an address that is none.
    """

    processed_by = "Serve with --logprobs-mode processed_logprobs and say log_probs='processed'"

    def __init__(
        self,
        url: str | JsonServer,
        *,
        served_model: str | None = None,
        names_weights: bool = False,
        tokenizer: Any = None,
        model: str | Path | None = None,
        version: str | None = None,
        context_limit: int | None = None,
        train_temperature: float = 1.0,
        api_key: str | None = None,
        profile: str = "token_chunk",
        log_probs: str = "raw",
        client: httpx.AsyncClient | None = None,
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
        self._served_model = served_model
        self._names_weights = names_weights
        self._endpoint = GENERATE if names_weights else COMPLETIONS

    async def _sample(self, prefix: TokenIds, ask: Ask, *, max_tokens: int) -> Generation:
        rid = plain_key(self._rid(ask.tag))
        asked = Asked(
            prefix=prefix,
            sampling=ask.sampling,
            max_tokens=max_tokens,
            rid=rid,
            name=ask.tag.request if ask.tag is not None else rid,
            model=self._served_model,
            version=self._pinned,
        )
        body = await self._transport.post(
            self._endpoint.path,
            self._endpoint.payload(asked),
            headers=_headers(rid, ask.tag),
            most_bytes=_REPLY_BYTES + max_tokens * _TOKEN_BYTES + len(prefix) * _PROMPT_BYTES,
        )
        return self._endpoint.read(body, asked)

    async def _told_version(self) -> str | None:
        told = None if self._names_weights else (await self._model_card()).get("id")
        return told if isinstance(told, str) else None

    async def _told_context(self) -> int | None:
        told = (await self._model_card()).get("max_model_len")
        return told if isinstance(told, int) else None

    async def _told_model(self) -> str:
        card = await self._model_card()
        return str(card.get("root") or card.get("id") or "")

    async def _model_card(self) -> Mapping[str, Any]:
        """What the server says of the model in use; empty when it says nothing.

        Raises:
            TransientError: not reached.
        """
        with suppress(FatalError, Refused, CorruptReply):
            listed = await self._transport.get("/v1/models")
            cards = listed.get("data") if isinstance(listed, Mapping) else None
            for card in cards if isinstance(cards, list) else []:
                wanted = self._served_model
                if isinstance(card, Mapping) and wanted in (None, card.get("id")):
                    return card
        return {}


def _headers(rid: str, tag: RequestTag | None) -> dict[str, str]:
    """The request's name, which servers prefer to the body's, and the router's session."""
    session = {} if tag is None else {"x-session-id": plain_key(tag.tree)}
    return {"x-request-id": rid, **session}
