"""A value model behind HTTP: FOCUS's own scorer, SGLang or vLLM."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from typing import Any

import anyio

from focus.critic.wire import Activation, FocusWire, ScorerProtocol, Scores, wire_for
from focus.errors import ConfigError, FatalError, RequestError, TransientError
from focus.policies.http import HttpServer, JsonServer
from focus.policies.retry import RetryPolicy, persist
from focus.records.records import CriticContext

__all__ = ("ServedScorer",)

_REPLY_BYTES = 2**16
_VALUE_BYTES = 512
"""A value is some 20 bytes, an item of vLLM's or SGLang's some 200."""

_CLOSE_S = 1.0


class ServedScorer:
    """Asks one server for values of one snapshot, and believes no reply from another.

    FOCUS's own scorer is asked within a session, which keeps the snapshot loaded there until
    `aclose`, or until it has not been asked for a while.

    Args:
        server: carries the requests.
        protocol: what the server speaks.
        version: the snapshot; a reply from another raises.
        activation: applied to what a foreign server answers.
        deadline_s: most seconds for one try.
        retry: how failures are repeated.
    """

    def __init__(
        self,
        server: JsonServer,
        *,
        protocol: ScorerProtocol,
        version: str,
        activation: Activation | None = None,
        deadline_s: float = 60.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not version:
            raise ConfigError("a served critic needs the version it stands for")
        if not deadline_s > 0:
            raise ConfigError(f"critic {version}: deadline_s must be > 0, got {deadline_s}")
        self._server = server
        self._version = version
        self._wire = wire_for(protocol, version=version, activation=activation)
        self._deadline_s = deadline_s
        self._retry = retry or RetryPolicy()
        self._name = f"critic/{version}/{secrets.token_hex(4)}"
        self._calls = 0

    @classmethod
    def at(cls, url: str, *, api_key: str | None = None, **options: Any) -> ServedScorer:
        """A scorer with an HTTP client of its own, which `aclose` closes."""
        return cls(HttpServer(url, api_key=api_key), **options)

    async def __call__(self, contexts: Sequence[CriticContext]) -> list[Any]:
        """One value per context, not yet checked for range.

        Raises:
            RequestError: the last try's fault; FatalError for another version.
        """
        self._calls += 1
        scores, _ = await persist(
            lambda _: self._try(contexts), retry=self._retry, name=f"{self._name}/{self._calls}"
        )
        return scores.values

    async def ready(self) -> None:
        """Ask for no values: FOCUS's scorer loads the snapshot and holds it for the session.

        Foreign servers answer nothing without an input, so they are not asked; their first
        reply says which version they serve.

        Raises:
            RequestError: not reached, or FatalError: no such snapshot.
        """
        if isinstance(self._wire, FocusWire):
            await self([])

    async def aclose(self) -> None:
        """Give the session back, if the server can still be told, and close the client."""
        try:
            if isinstance(self._wire, FocusWire) and self._calls:
                with anyio.move_on_after(_CLOSE_S, shield=True), contextlib.suppress(RequestError):
                    # A server that cannot be told lets the session expire.
                    await self._server.post("/sessions/close", {"session": self._wire.session})
        finally:
            await self._server.aclose()

    async def _try(self, contexts: Sequence[CriticContext]) -> Scores:
        with anyio.move_on_after(self._deadline_s):
            return await self._scores(contexts)
        raise TransientError(f"{self._server.url}: no values within {self._deadline_s:g} s")

    async def _scores(self, contexts: Sequence[CriticContext]) -> Scores:
        try:
            return await self._checked_scores(contexts)
        except RequestError as error:
            fault = self._server.cleaned(error)
        raise fault

    async def _checked_scores(self, contexts: Sequence[CriticContext]) -> Scores:
        reply = await self._server.post(
            self._wire.path,
            self._wire.payload(contexts),
            most_bytes=_REPLY_BYTES + _VALUE_BYTES * len(contexts),
        )
        scores = self._wire.scores(reply, contexts)
        if scores.version != self._version:
            raise FatalError(
                f"{self._server.url} answered with critic {scores.version!r}; "
                f"this tree is pinned to {self._version!r}"
            )
        return scores
