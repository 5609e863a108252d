"""Endpoints of training clients: make, load, train and save models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from focus.testing.tinker_service.desk import (
    Desk,
    Done,
    Endpoint,
    Job,
    Model,
    NotFound,
    Result,
    Snapshot,
)
from focus.testing.tinker_service.faults import FaultKind
from focus.testing.tinker_service.learning import StepCrash, Trainee
from focus.testing.tinker_service.wire import BadRequest, Batch, read_batch

__all__ = ("TrainingEndpoints",)

Body = Any


class TrainingEndpoints:
    """What a training client asks for; numbered requests wait for their turn."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def by_path(self) -> dict[str, Endpoint]:
        """Endpoints by the part of the path behind the prefix."""
        return {
            "create_model": self.create_model,
            "load_weights": self.load_weights,
            "get_info": self.get_info,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "save_weights": self.save_weights,
            "save_weights_for_sampler": self.save_weights_for_sampler,
        }

    async def create_model(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        base_model = body["base_model"]
        rank = (body.get("lora_config") or {}).get("rank", 0)
        if rank < 1 or rank & (rank - 1):
            raise BadRequest(f"rank must be a power of two, got {rank}")
        model_id = self._model_id(body)

        make = partial(Trainee, base_model, self._desk.base(base_model), rank=rank)
        return await self._new_model(model_id, make, {"type": "create_model", "model_id": model_id})

    async def load_weights(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        path, with_optimizer = body["path"], bool(body["optimizer"])
        state = self._desk.states.get(path)
        if state is None:
            raise NotFound(f"no saved state {path!r}")
        model_id = self._model_id(body)
        make = partial(
            Trainee.restored,
            state,
            self._desk.base(state.base_model),
            with_optimizer=with_optimizer,
        )
        answer = {"type": "load_weights", "path": path, "model_id": model_id}
        return await self._new_model(model_id, make, answer)

    def _model_id(self, body: Body) -> str:
        session = self._desk.session(body["session_id"])
        return f"{session}:train:{body['model_seq_id']}"

    async def _new_model(
        self, model_id: str, make: Callable[[], Trainee], answer: dict[str, Any]
    ) -> dict[str, Any]:
        request_id = f"{model_id}:0"

        def made() -> dict[str, Any]:
            self._desk.models[model_id] = Model(model_id, make())
            return answer

        if request_id not in self._desk.results:
            result = self._desk.results[request_id] = Result()
            await self._desk.settle(result, made)
        return {"request_id": request_id, "model_id": model_id}

    async def get_info(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        model = self._desk.model(body["model_id"])
        name = model.trainee.base_model
        return {
            "type": "get_info",
            "model_id": model.model_id,
            "model_data": {"model_name": name, "tokenizer_id": str(self._desk.base(name))},
            "is_lora": True,
            "lora_rank": model.trainee.rank,
            "model_name": name,
        }

    async def forward_backward(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        batch: Batch = read_batch(body)
        model = self._desk.model(batch.model_id)
        if not batch.rows:
            raise BadRequest("no data")

        def job() -> bytes:
            output = model.trainee.forward_backward(batch, crash=fault is FaultKind.CRASH)
            self._desk.log.append(
                Done(
                    "forward" if batch.forward_only else "forward_backward",
                    model.model_id,
                    batch.seq_id,
                    rows=len(batch.rows),
                    tokens=batch.tokens,
                    loss_fn=batch.loss_fn,
                    digest=batch.digest,
                )
            )
            return output

        return self._queued(model, batch.seq_id, job, fault)

    async def optim_step(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        model, seq_id = self._desk.model(body["model_id"]), body["seq_id"]

        def job() -> dict[str, Any]:
            metrics = model.trainee.optim_step(body["adam_params"], crash=fault is FaultKind.CRASH)
            self._desk.log.append(Done("optim_step", model.model_id, seq_id))
            return {"metrics": metrics}

        return self._queued(model, seq_id, job, fault)

    async def save_weights(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        model, seq_id = self._desk.model(body["model_id"]), body["seq_id"]
        path = f"tinker://{model.model_id}/weights/{body['path']}"

        def job() -> dict[str, Any]:
            if path in self._desk.states and not body.get("overwrite"):
                raise BadRequest(f"{path} exists")
            self._desk.states[path] = model.trainee.state()
            self._desk.log.append(Done("save_weights", model.model_id, seq_id))
            return {"type": "save_weights", "path": path}

        return self._queued(model, seq_id, job, fault)

    async def save_weights_for_sampler(self, body: Body, fault: FaultKind | None) -> dict[str, Any]:
        model, seq_id = self._desk.model(body["model_id"]), body["seq_id"]
        session = model.model_id.partition(":")[0]
        name, number = body.get("path"), body.get("sampling_session_seq_id")

        def job() -> dict[str, Any]:
            snapshot = Snapshot(model.trainee.base_model, model.trainee.weights())
            self._desk.log.append(Done("save_weights_for_sampler", model.model_id, seq_id))
            kind = {"type": "save_weights_for_sampler"}
            if name is None:
                sampling_id = f"{session}:sample:{number}"
                self._desk.sampling[sampling_id] = snapshot
                return {**kind, "sampling_session_id": sampling_id}
            path = f"tinker://{model.model_id}/sampler_weights/{name}"
            self._desk.snapshots[path] = snapshot
            return {**kind, "path": path}

        return self._queued(model, seq_id, job, fault)

    def _queued(
        self, model: Model, seq_id: int, job: Job, fault: FaultKind | None
    ) -> dict[str, Any]:
        if fault is FaultKind.FAILED:
            job = _refusing
        if fault is FaultKind.GONE:
            job = partial(_losing, job)
        return {"request_id": self._desk.enqueue(model, seq_id, job), "model_id": model.model_id}


def _refusing() -> dict[str, Any]:
    raise StepCrash("it failed before it began, as asked for")


def _losing(job: Job) -> Any:
    job()
    return None
