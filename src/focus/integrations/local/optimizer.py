"""One optimizer step, and optimizer state as safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.errors import StoreError
from focus.models.weights import stored_weights

__all__ = ("clip_and_step", "load_optimizer", "save_optimizer")

_OPTIMIZER = "optimizer.safetensors"
_SCHEMA = "focus.optimizer/1"


def clip_and_step(module: Any, optimizer: Any, most: float) -> float:
    """Clip the gradient's norm to `most` and take a step; returns the norm before.

    Raises:
        RuntimeError: the gradient is not finite; no step was taken.
    """
    torch = require("torch", extra="local")
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), most, error_if_nonfinite=True)
    optimizer.step()
    return float(norm)


def save_optimizer(optimizer: Any, folder: Path, *, steps: int) -> None:
    """Moments, and the number of steps taken so far, as one safetensors file."""
    safetensors = require("safetensors.torch", extra="local")
    tensors = {
        f"{index}.{name}": value.contiguous()
        for index, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }
    metadata = {"schema": _SCHEMA, "steps": json.dumps(steps)}
    safetensors.save_file(tensors, folder / _OPTIMIZER, metadata=metadata)


def load_optimizer(optimizer: Any, folder: Path) -> int:
    """Restore what `save_optimizer` wrote; returns its step count.

    Raises:
        StoreError: it is missing, damaged, of another schema or of another model.
    """
    safetensors = require("safetensors", extra="local")
    path = folder / _OPTIMIZER
    with stored_weights(path):
        with safetensors.safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        if metadata.get("schema") != _SCHEMA:
            raise StoreError(f"{path}: schema {metadata.get('schema')!r} is not {_SCHEMA!r}")
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            index, _, key = name.partition(".")
            state.setdefault(int(index), {})[key] = tensor
        _check_shapes(optimizer, state)
        steps = int(json.loads(metadata["steps"]))
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return steps


def _check_shapes(optimizer: Any, state: Mapping[int, Mapping[str, Any]]) -> None:
    """torch takes moments of any shape and count, and fails only at the next step."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    unknown = [index for index in state if not 0 <= index < len(parameters)]
    misshapen = [
        f"{index}.{name}"
        for index, values in state.items()
        for name, value in values.items()
        if index not in unknown and value.ndim and value.shape != parameters[index].shape
    ]
    if unknown or misshapen:
        raise ValueError(f"state of other parameters: {unknown[:3]}, {misshapen[:3]}")
