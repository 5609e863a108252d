"""One optimizer step, and optimizer state as safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.errors import StoreError

__all__ = ("clip_and_step", "load_optimizer", "save_optimizer")

_OPTIMIZER = "optimizer.safetensors"


def clip_and_step(module: Any, optimizer: Any, most: float) -> float:
    torch = require("torch", extra="local")
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), most, error_if_nonfinite=True)
    optimizer.step()
    return float(norm)


def save_optimizer(optimizer: Any, folder: Path, *, steps: int) -> None:
    safetensors = require("safetensors.torch", extra="local")
    tensors = {
        f"{index}.{name}": value.contiguous()
        for index, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }
    metadata = {"schema": "focus.optimizer/1", "steps": json.dumps(steps)}
    safetensors.save_file(tensors, folder / _OPTIMIZER, metadata=metadata)


def load_optimizer(optimizer: Any, folder: Path) -> int:
    safetensors = require("safetensors", extra="local")
    path = folder / _OPTIMIZER
    try:
        with safetensors.safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise StoreError(f"{path}: {error}") from error
    if metadata.get("schema") != "focus.optimizer/1":
        raise StoreError(f"{path}: schema {metadata.get('schema')!r} is not focus.optimizer/1")
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return int(json.loads(metadata["steps"]))
