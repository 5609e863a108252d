"""A store's critics over HTTP: values that say which snapshot gave them.

GET  /health                                        the process answers
GET  /version                                       current version, what is loaded
POST /sessions        {version?}                    hold a version (the current one)
POST /score           {session, version, contexts}  values, and digests of the contexts
POST /sessions/close  {session}
GET  /metrics                                       counters, for Prometheus
"""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from focus.critic.consistency import found_consistency, ruling
from focus.critic.snapshot import Snapshot
from focus.critic.store import SnapshotStore
from focus.critic.wire import context_digest
from focus.errors import CriticError, Refused, SchemaError, StoreError, TransientError
from focus.records import strict_json
from focus.records.codec import decode_context
from focus.records.records import CriticContext
from focus.records.strict_json import Fields
from focus.serving.leases import Leases

__all__ = ("scorer_app",)

T = TypeVar("T")

_MOST_BODY_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class _Score:
    """Contexts to value, and the session that asks."""

    session: str
    version: str
    contexts: list[CriticContext]


class _TooLarge(Exception):
    """The body exceeds what one request may hold."""


def scorer_app(
    store: SnapshotStore,
    leases: Leases,
    *,
    on_ready: Callable[[], None] = lambda: None,
) -> Starlette:
    """An ASGI application over a store; it never writes to it.

    Args:
        store: read at each new session, so a newly published version serves from then on.
        leases: what is in memory.
        on_ready: called once requests can be answered.
    """
    server = _Server(store, leases)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        on_ready()
        yield

    return Starlette(routes=server.routes(), lifespan=lifespan)


class _Server:
    def __init__(self, store: SnapshotStore, leases: Leases) -> None:
        self._store = store
        self._leases = leases
        self._counts: Counter[str] = Counter()

    def routes(self) -> list[Route]:
        get = {"/health": self.health, "/version": self.version, "/metrics": self.metrics}
        post = {
            "/score": self._answering(_read_score, self.score),
            "/sessions": self._answering(_read_wish, self.open_session),
            "/sessions/close": self._answering(_read_session, self.close_session),
        }
        return [
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in get.items()),
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in post.items()),
        ]

    async def health(self, request: Request) -> Response:
        return JSONResponse({"ok": True})

    async def version(self, request: Request) -> Response:
        current = await anyio.to_thread.run_sync(self._store.current)
        return JSONResponse(
            {
                "current": None if current is None else await self._facts(current),
                "loaded": list(self._leases.loaded),
                "sessions": len(self._leases.sessions),
            }
        )

    async def metrics(self, request: Request) -> Response:
        lines = [f"focus_critic_{name}_total {n}" for name, n in sorted(self._counts.items())]
        lines.append(f"focus_critic_sessions {len(self._leases.sessions)}")
        lines += [f'focus_critic_loaded{{version="{name}"}} 1' for name in self._leases.loaded]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def open_session(self, wanted: str | None) -> dict[str, Any]:
        """Hold a version; a new session takes the one that is current now."""
        snapshot = await anyio.to_thread.run_sync(self._snapshot, wanted)
        session = secrets.token_hex(16)
        await self._leases.critic(session, snapshot.version)
        self._counts["sessions_opened"] += 1
        facts = await self._facts(snapshot)
        return {"session": session, "lease_s": self._leases.lease_s, **facts}

    async def close_session(self, session: str) -> dict[str, Any]:
        self._leases.close(session)
        return {}

    async def score(self, ask: _Score) -> dict[str, Any]:
        critic = await self._leases.critic(ask.session, ask.version)
        values = await critic.score(ask.contexts)
        self._counts["contexts"] += len(ask.contexts)
        return {
            "version": critic.version,
            "values": values,
            "contexts": [context_digest(context) for context in ask.contexts],
        }

    def _snapshot(self, wanted: str | None) -> Snapshot:
        if wanted is not None:
            return self._store.manifest(wanted)
        current = self._store.current()
        if current is None:
            raise StoreError(f"{self._store.path}: no critic is published yet")
        return current

    async def _facts(self, snapshot: Snapshot) -> dict[str, Any]:
        found = await anyio.to_thread.run_sync(
            found_consistency, self._store.path, snapshot.version
        )
        verdict = ruling(snapshot, found)
        return {
            "version": snapshot.version,
            "renderer": snapshot.facts.renderer,
            "value_range": list(snapshot.facts.value_range),
            "constant": snapshot.facts.constant,
            "steering": verdict.steering,
            "reason": verdict.reason,
        }

    def _answering(
        self, read: Callable[[Fields], T], do: Callable[[T], Awaitable[dict[str, Any]]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Statuses as clients sort faults: 404 for a version that no retry will find."""

        async def endpoint(request: Request) -> Response:
            self._counts["requests"] += 1
            try:
                fields = Fields(strict_json.loads(await _body(request), where="body"), where="body")
                asked = read(fields)
                fields.done()
            except _TooLarge as error:
                return self._refused(413, error)
            except SchemaError as error:
                return self._refused(400, error)
            try:
                return JSONResponse(await do(asked))
            except Refused as error:
                return self._refused(409, error)
            except TransientError as error:
                return self._refused(503, error, headers={"retry-after": "1"})
            except StoreError as error:
                return self._refused(404, error)
            except CriticError as error:
                return self._refused(422, error)

        return endpoint

    def _refused(
        self, status: int, error: Exception, headers: dict[str, str] | None = None
    ) -> Response:
        self._counts["refused"] += 1
        return JSONResponse({"error": str(error)}, status, headers)


def _read_score(fields: Fields) -> _Score:
    contexts = [
        decode_context(Fields(item, where=f"context {place}"))
        for place, item in enumerate(fields.items("contexts"))
    ]
    return _Score(fields.text("session"), fields.text("version"), contexts)


def _read_wish(fields: Fields) -> str | None:
    return fields.text("version") if "version" in fields else None


def _read_session(fields: Fields) -> str:
    return fields.text("session")


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY_BYTES:
            raise _TooLarge(f"more than {_MOST_BODY_BYTES} bytes")
    return bytes(body)
