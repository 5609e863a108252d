"""What the service knows: sessions, models, samplers, saved states, and pending results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from focus.policies.convention import LogProbConvention
from focus.testing.tinker_service.faults import FaultKind
from focus.testing.tinker_service.learning import SavedState, StepCrash, Trainee
from focus.testing.tinker_service.sampling import Sampler
from focus.testing.tinker_service.wire import BadRequest

__all__ = ("Desk", "Done", "Endpoint", "Model", "NotFound", "Result", "Snapshot")

_OPEN_SAMPLERS = 6


class NotFound(LookupError):
    """What a server answers with status 404."""


@dataclass(frozen=True, slots=True)
class Done:
    """One training request that was carried out.

    Attributes:
        route: what it was.
        model_id, seq_id: whose, and its number there.
        rows, tokens: size of a batch, as billed.
        loss_fn: of a batch.
        digest: names a batch's content.
    """

    route: str
    model_id: str
    seq_id: int
    rows: int = 0
    tokens: int = 0
    loss_fn: str = ""
    digest: str = ""


@dataclass(eq=False, slots=True)
class Result:
    """A request's result, once there is one: JSON, protobuf bytes, or lost."""

    ready: anyio.Event = field(default_factory=anyio.Event)
    value: dict[str, Any] | bytes | None = None

    def set(self, value: dict[str, Any] | bytes | None) -> None:
        self.value = value
        self.ready.set()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Weights to sample from; None is the base model's own."""

    base_model: str
    weights: Mapping[str, Any] | None
    path: str | None = None


Job = Callable[[], dict[str, Any] | bytes]
Endpoint = Callable[[Any, FaultKind | None], Awaitable[dict[str, Any]]]
"""From a request's body and its fault to the answer."""


@dataclass(eq=False, slots=True)
class Model:
    """One training client's model, and the requests that wait for their turn."""

    model_id: str
    trainee: Trainee
    due: int = 1
    waiting: dict[int, tuple[Job, Result]] = field(default_factory=dict)
    turn: anyio.Lock = field(default_factory=anyio.Lock)


class Desk:
    """State of one service process, and the states on its disk.

    Numbered requests of a model run in the order of their numbers, whenever they arrive;
    a number that came before has the result it had.
    """

    def __init__(self, base_models: Mapping[str, Path], convention: LogProbConvention) -> None:
        self.base_models = dict(base_models)
        self._convention = convention
        self.states: dict[str, SavedState] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.log: list[Done] = []
        self.generation = 0
        self.torch = threading.Lock()
        self.loading = threading.Lock()
        self.group: TaskGroup | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._samplers: dict[str, Sampler] = {}
        self._opening = anyio.Lock()
        self.results: dict[str, Result] = {}
        self.forget()

    def forget(self) -> None:
        """Start anew, as a process does: saved states and snapshots stay on disk."""
        self.generation += 1
        self.sessions: set[str] = set()
        self.models: dict[str, Model] = {}
        self.sampling: dict[str, Snapshot] = {}
        self.stop()
        self.results = {}
        self.close_samplers()

    def stop(self) -> None:
        """Nobody waits any longer for what will not come."""
        for result in self.results.values():
            if not result.ready.is_set():
                result.set({"error": "the service stopped", "category": "server"})

    def close_samplers(self) -> None:
        samplers, self._samplers = self._samplers, {}
        for sampler in samplers.values():
            sampler.close()

    def base(self, name: str) -> Path:
        """The folder of a base model."""
        if name not in self.base_models:
            raise BadRequest(f"unknown base model {name!r}; served: {', '.join(self.base_models)}")
        return self.base_models[name]

    def model(self, model_id: str) -> Model:
        if model_id not in self.models:
            raise NotFound(f"no model {model_id!r}")
        return self.models[model_id]

    def session(self, session_id: str) -> str:
        if session_id not in self.sessions:
            raise NotFound(f"no session {session_id!r}")
        return session_id

    async def sampler(self, session_id: str) -> Sampler:
        """The engine of a sampling session; the oldest is closed when there are many."""
        snapshot = self.sampling.get(session_id)
        if snapshot is None:
            raise NotFound(f"no sampling session {session_id!r}")
        async with self._opening:
            known = self._samplers.get(session_id)
            if known is None:
                if len(self._samplers) >= _OPEN_SAMPLERS:
                    self._samplers.pop(next(iter(self._samplers))).close()
                known = await anyio.to_thread.run_sync(self._opened, snapshot)
                self._samplers[session_id] = known
        return known

    def _opened(self, snapshot: Snapshot) -> Sampler:
        folder = self.base(snapshot.base_model)
        with self.loading:
            return Sampler(folder, snapshot.weights, convention=self._convention)

    async def settle(self, result: Result, make: Callable[[], dict[str, Any]]) -> None:
        """Set a result to what `make` gives in a thread, or to its failure.

        One model is loaded at a time: transformers' loading is not thread-safe.
        """

        def made() -> dict[str, Any]:
            with self.loading:
                return make()

        try:
            result.set(await anyio.to_thread.run_sync(made))
        except Exception as error:
            result.set(_failure(error))

    def begin(self, request_id: str, work: Callable[[], Awaitable[bytes]]) -> Result:
        """Carry out a request beside others; the same id is carried out once."""
        known = self.results.get(request_id)
        if known is not None:
            return known
        result = self.results[request_id] = Result()
        assert self.group is not None, "requests come in while the service runs"
        self.group.start_soon(self._run, work, result)
        return result

    async def _run(self, work: Callable[[], Awaitable[bytes]], result: Result) -> None:
        try:
            result.set(await work())
        except Exception as error:
            result.set(_failure(error))

    def enqueue(self, model: Model, seq_id: int, job: Job) -> str:
        """Carry out a model's request at its turn; the same number is carried out once."""
        request_id = f"{model.model_id}:{seq_id}"
        if request_id not in self.results:
            result = self.results[request_id] = Result()
            model.waiting[seq_id] = (job, result)
            assert self.group is not None, "requests come in while the service runs"
            self.group.start_soon(self._drain, model)
        return request_id

    async def _drain(self, model: Model) -> None:
        async with model.turn:
            while model.due in model.waiting:
                job, result = model.waiting.pop(model.due)
                model.due += 1
                try:
                    result.set(await anyio.to_thread.run_sync(self._locked, job))
                except Exception as error:
                    result.set(_failure(error))

    def _locked(self, job: Job) -> dict[str, Any] | bytes:
        """One training step at a time: two would share the cores and gain nothing."""
        with self.torch:
            return job()


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, BadRequest):
        return {"error": str(error), "category": "user"}
    category = "server" if isinstance(error, StepCrash) else "unknown"
    return {"error": f"{type(error).__name__}: {error}", "category": category}
