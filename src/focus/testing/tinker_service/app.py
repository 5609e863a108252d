"""Tinker's routes over the desk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from focus.records import strict_json
from focus.testing.tinker_service.desk import Desk, Endpoint, NotFound, Result, Snapshot
from focus.testing.tinker_service.faults import FaultKind, FaultPlan
from focus.testing.tinker_service.training import TrainingEndpoints
from focus.testing.tinker_service.wire import BadRequest, read_sample

__all__ = ("tinker_app",)

_PREFIX = "/api/v1"
_PATIENCE_S = 30.0
"""A result that takes longer is asked for again."""

_STATUS = {FaultKind.BUSY: 429, FaultKind.UNAVAILABLE: 503}
_KEEP_BODY = frozenset({"forward_backward"})

Body = Any


def tinker_app(
    desk: Desk, faults: FaultPlan, config: Mapping[str, Any], *, api_key: str
) -> Starlette:
    """An ASGI application that speaks the protocol of SDK 0.38.

    Args:
        desk: its state.
        faults: shown when their turn comes.
        config: what ``client/config`` answers.
        api_key: the one that is let in.
    """
    service = _Service(desk, faults, config, api_key)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            desk.group = group
            desk.loop = asyncio.get_running_loop()
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                desk.close_samplers()

    return Starlette(routes=service.routes(), lifespan=lifespan)


class _Service:
    def __init__(
        self, desk: Desk, faults: FaultPlan, config: Mapping[str, Any], api_key: str
    ) -> None:
        self._desk = desk
        self._faults = faults
        self._config = dict(config)
        self._api_key = api_key

    def routes(self) -> list[Route]:
        endpoints: dict[str, Endpoint] = {
            "client/config": self.client_config,
            "client/dynamic_config": self.nothing,
            "create_session": self.create_session,
            "session_heartbeat": self.heartbeat,
            "telemetry": self.telemetry,
            "create_sampling_session": self.create_sampling_session,
            "asample": self.asample,
            "cancel_future": self.nothing,
            **TrainingEndpoints(self._desk).by_path(),
        }
        posts = [
            Route(f"{_PREFIX}/{path}", partial(self._answered, path, endpoint), methods=["POST"])
            for path, endpoint in endpoints.items()
        ]
        return [
            *posts,
            Route(f"{_PREFIX}/retrieve_future", self.retrieve_future, methods=["POST"]),
            Route(f"{_PREFIX}/sessions/{{id}}/finish", _finished, methods=["POST"]),
            Route(f"{_PREFIX}/samplers/{{id:path}}", self.get_sampler, methods=["GET"]),
            Route(f"{_PREFIX}/get_server_capabilities", self.capabilities, methods=["GET"]),
            Route(f"{_PREFIX}/healthz", _healthy, methods=["GET"]),
        ]

    async def _answered(self, path: str, endpoint: Endpoint, request: Request) -> Response:
        """One request: credentials, faults, work, and errors as statuses."""
        if request.headers.get("x-api-key") != self._api_key:
            return _error(401, "no valid API key")
        body: Any = await request.body()
        if path not in _KEEP_BODY:
            body = strict_json.loads(body, where=path) if body else {}
        fault = self._faults.next(path)
        if fault in _STATUS:
            return _error(_STATUS[fault], f"{fault}, as asked for")
        if fault is FaultKind.RESTART:
            self._desk.forget()
        try:
            answer = await endpoint(body, fault)
        except NotFound as error:
            return _error(404, str(error))
        except (KeyError, ValueError) as error:
            return _error(400, f"{type(error).__name__}: {error}")
        if fault is FaultKind.REPLY_LOST:
            return _error(502, "the reply was lost, as asked for")
        return JSONResponse(answer)

    async def client_config(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        return self._config

    async def nothing(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        return {}

    async def telemetry(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        return {"status": "accepted"}

    async def create_session(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        session_id = f"session-{self._desk.generation}-{len(self._desk.sessions)}"
        self._desk.sessions.add(session_id)
        return {"type": "create_session", "session_id": session_id}

    async def heartbeat(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        self._desk.session(body["session_id"])
        return {"type": "session_heartbeat"}

    async def create_sampling_session(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        session = self._desk.session(body["session_id"])
        path, base_model = body.get("model_path"), body.get("base_model")
        if path is not None:
            snapshot = self._desk.snapshots.get(path)
            if snapshot is None:
                raise NotFound(f"no sampler weights {path!r}")
        else:
            self._desk.base(base_model)
            snapshot = Snapshot(base_model, None)
        sampling_id = f"{session}:sample:{body['sampling_session_seq_id']}"
        self._desk.sampling[sampling_id] = snapshot
        return {"type": "create_sampling_session", "sampling_session_id": sampling_id}

    async def asample(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        work = read_sample(body)
        sampler = await self._desk.sampler(work.session)
        if len(work.prompt) + (work.max_tokens or 1) > sampler.context_limit:
            raise BadRequest(
                f"{len(work.prompt)} prompt tokens and {work.max_tokens or 1} new ones exceed "
                f"the context of {sampler.context_limit}"
            )
        request_id = f"{work.session}:{work.seq_id}"
        if fault in (FaultKind.FAILED, FaultKind.GONE):
            self._desk.results[request_id] = _spoiled(fault)
        self._desk.begin(request_id, lambda: sampler.answer(work))
        names = [f"{request_id}:{index}" for index in range(work.count)]
        return {"request_id": request_id, "sample_sequence_ids": names}

    async def retrieve_future(self, request: Request) -> Response:
        """A result as soon as it is there; whoever asks again gets the same."""
        body: Any = strict_json.loads(await request.body(), where="retrieve_future")
        fault = self._faults.next("retrieve_future")
        if fault in _STATUS:
            return _error(_STATUS[fault], f"{fault}, as asked for")
        request_id = body["request_id"]
        result = self._desk.results.get(request_id)
        if result is None:
            return _error(404, f"no request {request_id!r}")
        with anyio.move_on_after(_PATIENCE_S):
            await result.ready.wait()
        if not result.ready.is_set():
            # The SDK asks again at this status without a word; at a 200 that says
            # "try_again" it writes a line of log for each request and each time.
            return JSONResponse({"type": "try_again", "queue_state": "active"}, 408)
        if result.value is None or fault is FaultKind.GONE:
            return _error(410, "the result is gone, as asked for")
        if isinstance(result.value, bytes):
            return Response(result.value, media_type="application/x-protobuf")
        return JSONResponse(result.value)

    async def get_sampler(self, request: Request) -> Response:
        name = request.path_params["id"]
        snapshot = self._desk.sampling.get(name)
        if snapshot is None:
            return _error(404, f"no sampling session {name!r}")
        return JSONResponse({"sampler_id": name, "base_model": snapshot.base_model})

    async def capabilities(self, request: Request) -> Response:
        models = [
            {
                "model_name": name,
                "max_context_length": _context_length(folder),
                "trainable": True,
                "sampleable": True,
            }
            for name, folder in self._desk.base_models.items()
        ]
        return JSONResponse({"supported_models": models})


def _context_length(folder: Path) -> int:
    """Most tokens of prompt plus reply, as the model's own settings say."""
    config: Any = strict_json.loads((folder / "config.json").read_bytes(), where=str(folder))
    return int(config["max_position_embeddings"])


def _spoiled(fault: FaultKind) -> Result:
    result = Result()
    failed = {"error": "it failed, as asked for", "category": "server"}
    result.set(failed if fault is FaultKind.FAILED else None)
    return result


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text, "detail": text}, status)


async def _finished(request: Request) -> Response:
    return JSONResponse({})


async def _healthy(request: Request) -> Response:
    return JSONResponse({"status": "ok"})
