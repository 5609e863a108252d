"""SGLang's HTTP endpoints over the embedded engine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from focus.errors import ConfigError, FocusError, LifecycleError, Refused, SchemaError
from focus.models import resolve
from focus.policies.base import RequestTag
from focus.policies.transformers import TransformersPolicy
from focus.records import strict_json
from focus.sampling import Sampling
from focus.serving.book import RequestBook
from focus.serving.protocol import (
    BadRequest,
    Job,
    Work,
    aborted_reply,
    error_body,
    read_request,
    reply_body,
)

__all__ = ("sglang_app",)

_CLIENT_GONE = 499
Outcome = dict[str, Any] | FocusError


def sglang_app(
    policy: TransformersPolicy,
    *,
    model: str,
    max_batch: int,
    on_ready: Callable[[], None] = lambda: None,
) -> Starlette:
    """An ASGI application that serves `policy` as one SGLang worker, or as its own router.

    Args:
        policy: samples; closed when the application shuts down.
        model: path of the served model, as clients are told.
        max_batch: requests that run at once; more wait.
        on_ready: called once requests can be answered.
    """
    server = _Server(policy, model, max_batch)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        on_ready()
        try:
            yield
        finally:
            await policy.aclose()

    return Starlette(routes=server.routes(), lifespan=lifespan)


class _Server:
    """The endpoints. Log-probs are those of the law sampled, top-p and top-k included."""

    def __init__(self, policy: TransformersPolicy, model: str, max_batch: int) -> None:
        self._policy = policy
        self._model = model
        self._max_batch = max_batch
        self._book = RequestBook()

    def routes(self) -> list[Route]:
        get: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/health": self.health,
            "/health_generate": self.health_generate,
            "/get_model_info": self.model_info,
            "/model_info": self.model_info,
            "/get_server_info": self.server_info,
            "/server_info": self.server_info,
            "/workers": self.workers,
            "/v1/loads": self.loads,
        }
        post: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/generate": self.generate,
            "/abort_request": self.abort_request,
            "/flush_cache": self.flush_cache,
            "/update_weights_from_disk": self.update_weights,
        }
        return [
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in get.items()),
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in post.items()),
        ]

    async def generate(self, request: Request) -> Response:
        """Sample; a client that goes away takes its requests with it."""
        try:
            work = read_request(await _body(request))
        except BadRequest as error:
            return JSONResponse(error_body(str(error)), 400)
        outcomes: list[Outcome] = []
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_gone, request, group.cancel_scope)
            outcomes = await self._done(work)
            group.cancel_scope.cancel()
        if len(outcomes) < len(work.jobs):
            return Response(status_code=_CLIENT_GONE)
        for outcome in outcomes:
            if isinstance(outcome, FocusError):
                return JSONResponse(error_body(str(outcome)), _status(outcome))
        return JSONResponse(outcomes if work.is_list else outcomes[0])

    async def _done(self, work: Work) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(work.jobs)

        async def run(place: int, job: Job) -> None:
            outcomes[place] = await self._sampled(job, work.wants_log_probs)

        async with anyio.create_task_group() as group:
            for place, job in enumerate(work.jobs):
                group.start_soon(run, place, job)
        return [outcome for outcome in outcomes if outcome is not None]

    async def _sampled(self, job: Job, wants_log_probs: bool) -> Outcome:
        async with self._book.admitted(job.rid):
            try:
                tag = RequestTag(request=job.rid, tree="")
                reply = await self._policy.generate(job.prefix, job.sampling, tag=tag)
            except FocusError as error:
                return error
            text = self._policy.decode(reply.ids)
            return reply_body(job, reply, text, wants_log_probs=wants_log_probs)
        return aborted_reply(job, version=self._policy.version)

    async def abort_request(self, request: Request) -> Response:
        """Abort the requests whose name starts with `rid`, or all of them."""
        try:
            body = await _object(request)
            everything = body.get("abort_all") is True
            rid = "" if everything else body.get("rid")
            if not isinstance(rid, str) or not (rid or everything):
                raise BadRequest("name a rid, or say abort_all")
        except BadRequest as error:
            return JSONResponse(error_body(str(error)), 400)
        self._book.abort(rid)
        return Response(status_code=200)

    async def flush_cache(self, request: Request) -> Response:
        """Forget cached prefixes; 400 while requests run."""
        try:
            await anyio.to_thread.run_sync(self._policy.flush_cache)
        except LifecycleError as error:
            return Response(str(error), 400)
        return Response("Cache flushed.\n")

    async def update_weights(self, request: Request) -> Response:
        """Take the weights of a model folder once running requests have ended."""
        try:
            body = await _object(request)
            path, version = body.get("model_path"), body.get("weight_version")
            if not isinstance(path, str) or not isinstance(version, str) or not version:
                raise BadRequest("model_path and weight_version are needed: new weights, new name")
            folder = resolve(path)
            if body.get("abort_all_requests") is True:
                self._book.abort("")
            async with self._book.alone():
                change = partial(self._policy.update_weights, folder, version=version)
                await anyio.to_thread.run_sync(change)
                self._model = str(folder)
        except (BadRequest, ConfigError, LifecycleError) as error:
            return JSONResponse({"success": False, "message": str(error)}, 400)
        message = f"Succeeded to update model weights. Weight version updated to {version}."
        return JSONResponse({"success": True, "message": message, "num_paused_requests": 0})

    async def health(self, request: Request) -> Response:
        """The process answers."""
        return Response(status_code=200)

    async def health_generate(self, request: Request) -> Response:
        """The engine answers: one token."""
        try:
            await self._policy.generate((0,), Sampling(temperature=0.0, max_tokens=1))
        except FocusError:
            return Response(status_code=503)
        return Response(status_code=200)

    async def model_info(self, request: Request) -> Response:
        return JSONResponse(
            {
                "model_path": self._model,
                "tokenizer_path": self._model,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": self._policy.version,
            }
        )

    async def server_info(self, request: Request) -> Response:
        limit = self._policy.context_limit
        return JSONResponse(
            {
                "model_path": self._model,
                "served_model_name": self._model,
                "context_length": limit,
                "max_req_input_len": limit,
                "max_running_requests": self._max_batch,
                "vocab_size": self._policy.vocab_size,
                "weight_version": self._policy.version,
            }
        )

    async def workers(self, request: Request) -> Response:
        """Itself: a client that expects a router finds one worker behind it."""
        url = str(request.base_url).rstrip("/")
        worker = {"id": url, "url": url, "worker_type": "regular", "is_healthy": True}
        return JSONResponse({"workers": [{**worker, "load": len(self._book)}], "total": 1})

    async def loads(self, request: Request) -> Response:
        running = min(len(self._book), self._max_batch)
        load = {
            "dp_rank": 0,
            "num_running_reqs": running,
            "num_waiting_reqs": len(self._book) - running,
            "num_total_reqs": len(self._book),
        }
        return JSONResponse({"dp_rank_count": 1, "loads": [load]})


async def _body(request: Request) -> Any:
    try:
        return strict_json.loads(await request.body(), where="the body")
    except SchemaError as error:
        raise BadRequest(str(error)) from error


async def _object(request: Request) -> dict[str, Any]:
    body = await _body(request)
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


async def _cancel_when_gone(request: Request, scope: anyio.CancelScope) -> None:
    """Cancel once the client has closed its connection; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _status(error: FocusError) -> int:
    if isinstance(error, Refused):
        return 400
    return 503 if isinstance(error, LifecycleError) else 500
