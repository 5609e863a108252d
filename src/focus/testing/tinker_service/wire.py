"""Tinker's wire format, from the service's side: requests read, results written.

Bodies are JSON, but for `forward_backward` and the results of sampling and training steps,
which are the protobuf messages that the SDK ships. Tensors are flat bytes; NaN stands for a
log-prob that was not computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from focus._extras import require
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = (
    "BadRequest",
    "Batch",
    "Row",
    "SampleWork",
    "read_batch",
    "read_sample",
    "write_outputs",
    "write_sample",
)

Array = Any
"""A numpy array."""

_UNSERVED = ("topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k")


class BadRequest(ValueError):
    """What a server answers with status 400."""


@dataclass(frozen=True, slots=True)
class Row:
    """One datum: input ids, and per-position tensors by name."""

    tokens: TokenIds
    inputs: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward_backward request."""

    model_id: str
    seq_id: int
    loss_fn: str
    config: Mapping[str, float]
    forward_only: bool
    rows: tuple[Row, ...]

    @property
    def tokens(self) -> int:
        """Ids that a service bills."""
        return sum(len(row.tokens) for row in self.rows)

    @property
    def digest(self) -> str:
        """Names the content: rows with the same ids and tensors have the same digest."""
        content = hashlib.sha256(self.loss_fn.encode())
        for row in self.rows:
            content.update(np.asarray(row.tokens, dtype=np.int64).tobytes())
            for name in sorted(row.inputs):
                content.update(name.encode())
                content.update(row.inputs[name].tobytes())
        return content.hexdigest()[:16]


def read_batch(body: bytes) -> Batch:
    """A forward_backward request.

    Raises:
        BadRequest: a chunk that is no text, or a tensor of another length than its row.
    """
    message = _messages().ForwardBackwardRequest()
    message.ParseFromString(body)
    return Batch(
        model_id=message.model_id,
        seq_id=message.seq_id,
        loss_fn=message.loss_fn,
        config={name: value.number for name, value in message.loss_fn_config_v2.items()},
        forward_only=message.forward_only,
        rows=tuple(_read_row(datum) for datum in message.data),
    )


def _read_row(datum: Any) -> Row:
    tokens: list[int] = []
    for chunk in datum.model_input:
        if not chunk.HasField("encoded_text"):
            raise BadRequest("only text chunks are served here")
        tokens += np.frombuffer(chunk.encoded_text.tokens, dtype=np.int32).tolist()
    inputs = {name: _read_tensor(tensor) for name, tensor in datum.loss_fn_inputs.items()}
    for name, array in inputs.items():
        if array.shape[:1] != (len(tokens),):
            raise BadRequest(f"{name} has shape {array.shape} for {len(tokens)} input tokens")
    return Row(tuple(tokens), inputs)


def _read_tensor(message: Any) -> Array:
    """Dense values; cells that a sparse tensor leaves out are 0."""
    dtype = np.float32 if message.dtype == _messages().DTYPE_FLOAT32 else np.int64
    shape = tuple(message.shape) or (-1,)
    if not message.HasField("sparse_csr"):
        return np.frombuffer(message.dense, dtype=dtype).reshape(shape)
    csr = message.sparse_csr
    return _dense(
        np.frombuffer(csr.values, dtype=dtype),
        shape,
        np.frombuffer(csr.crow_indices, dtype=np.int64).tolist(),
        np.frombuffer(csr.col_indices, dtype=np.int64).tolist(),
        missing=0,
    )


def _dense(
    values: Array,
    shape: tuple[int, ...],
    row_ends: Sequence[int],
    columns: Sequence[int],
    *,
    missing: int,
) -> Array:
    dense = np.full(shape, missing, dtype=values.dtype)
    for row in range(shape[0]):
        for place in range(row_ends[row], row_ends[row + 1]):
            dense[row, columns[place]] = values[place]
    return dense


@dataclass(frozen=True, slots=True)
class SampleWork:
    """One asample request.

    Attributes:
        session, seq_id: where it came in.
        prompt: ids.
        count: samples wanted.
        max_tokens, temperature, top_p, top_k, seed: as sent; None is "not given".
        stop: ids that end a sample; None is the model's own end.
        prompt_log_probs: how many of the last prompt ids to score; 0 is none.
        targets: ids to score per prompt position, [len(prompt) - 1, K], -1 for none.
    """

    session: str
    seq_id: int
    prompt: TokenIds
    count: int
    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int | None
    seed: int | None
    stop: tuple[int, ...] | None
    prompt_log_probs: int
    targets: Array | None


def read_sample(body: Mapping[str, Any]) -> SampleWork:
    """An asample request.

    Raises:
        BadRequest: it asks for what is not served here, or targets have another shape.
    """
    asked = [name for name in _UNSERVED if body.get(name)]
    if asked:
        raise BadRequest(f"{asked[0]} is not served here")
    prompt = tuple(token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"])
    law = body["sampling_params"]
    stop = law.get("stop")
    if stop is not None and not all(isinstance(token, int) for token in stop):
        raise BadRequest("only stop ids are served here")
    last = body.get("prompt_logprobs_last_n") or len(prompt) - 1
    return SampleWork(
        session=body["sampling_session_id"],
        seq_id=body["seq_id"],
        prompt=prompt,
        count=body["num_samples"],
        max_tokens=law.get("max_tokens"),
        temperature=law.get("temperature", 1.0),
        top_p=law.get("top_p", 1.0),
        top_k=law["top_k"] if law.get("top_k", -1) > 0 else None,
        seed=law.get("seed"),
        stop=None if stop is None else tuple(stop),
        prompt_log_probs=last if body.get("prompt_logprobs") else 0,
        targets=_read_targets(body.get("target_prompt_logprobs"), len(prompt)),
    )


def _read_targets(tensor: Mapping[str, Any] | None, prompt_tokens: int) -> Array | None:
    if tensor is None:
        return None
    shape = tuple(tensor["shape"])
    if len(shape) != 2 or shape[0] != prompt_tokens - 1:
        raise BadRequest(f"targets of shape {shape} for a prompt of {prompt_tokens} tokens")
    values = np.asarray(tensor["data"], dtype=np.int64)
    rows = tensor.get("sparse_crow_indices")
    if rows is None:
        return values.reshape(shape)
    return _dense(values, shape, rows, tensor["sparse_col_indices"], missing=-1)


def write_sample(
    samples: Sequence[Generation],
    *,
    prompt_log_probs: Array | None = None,
    target_log_probs: Array | None = None,
    cached_tokens: int = 0,
) -> bytes:
    """The result of an asample request."""
    messages = _messages()
    result = messages.SampleResponse(prompt_cache_hit_tokens=cached_tokens)
    for sample in samples:
        one = result.sequences.add()
        has_stopped = sample.finish is FinishReason.STOP
        one.stop_reason = messages.STOP_REASON_STOP if has_stopped else messages.STOP_REASON_LENGTH
        one.tokens = np.asarray(sample.ids, dtype=np.int32).tobytes()
        one.logprobs = np.asarray(sample.log_probs, dtype=np.float32).tobytes()
    if prompt_log_probs is not None:
        result.prompt_logprobs = prompt_log_probs.astype(np.float32).tobytes()
    if target_log_probs is not None:
        result.target_prompt_logprobs.dtype = messages.DTYPE_FLOAT32
        result.target_prompt_logprobs.shape.extend(target_log_probs.shape)
        result.target_prompt_logprobs.dense = target_log_probs.astype(np.float32).tobytes()
    encoded: bytes = result.SerializeToString()
    return encoded


def write_outputs(log_probs: Sequence[Array], *, loss: float) -> bytes:
    """The result of a forward_backward request: log-probs per datum, and the summed loss.

    Data of different trailing shapes go into records of their own.
    """
    messages = _messages()
    result = messages.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    result.metrics["loss:sum"] = loss
    for run in _runs_of_one_shape(log_probs):
        record = result.loss_fn_outputs.add(num_datums=len(run))
        tensor = record.fields["logprobs"]
        tensor.dtype = messages.DTYPE_FLOAT32
        tensor.trailing_shape.extend(run[0].shape[1:])
        tensor.data = b"".join(array.astype(np.float32).tobytes() for array in run)
        ends = np.cumsum([0, *(4 * array.size for array in run)])
        tensor.offsets = ends.astype(np.int64).tobytes()
    encoded: bytes = result.SerializeToString()
    return encoded


def _runs_of_one_shape(arrays: Sequence[Array]) -> list[list[Array]]:
    runs: list[list[Array]] = []
    for array in arrays:
        if runs and runs[-1][0].shape[1:] == array.shape[1:]:
            runs[-1].append(array)
        else:
            runs.append([array])
    return runs


def _messages() -> Any:
    return require("tinker.proto.tinker_public_pb2", extra="tinker")
