"""Tree attention whose cost is that of the paths, not of the square of the row (flex attention).

Needs CUDA and a model of transformers that supports it. Whether it works here is found out by
a pass forward and back; where it does not, the caller's mask does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from focus._extras import require

__all__ = ("block_mask", "can_flex", "switched_to_flex")

_NAME = "flex_attention"
_FAILURES = (AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError)
"""What a missing kernel, a missing compiler and a refused input raise."""


def can_flex(model: Any) -> bool:
    """Whether it may be tried: on CUDA, below double precision, by a model that supports it."""
    torch = require("torch", extra="local")
    return (
        torch.device(model.device).type == "cuda"
        and model.dtype != torch.float64
        and bool(getattr(model, "_supports_flex_attn", False))
    )


def block_mask(ends: Any) -> Any:
    """The mask of rows whose token i sees token j iff j <= i < ends[row, j].

    Args:
        ends: [rows, n], on the model's device.
    """
    flex = require("torch.nn.attention.flex_attention", extra="local")

    def sees(row: Any, head: Any, token: Any, other: Any) -> Any:
        return (other <= token) & (token < ends[row, other])

    rows, size = ends.shape
    return flex.create_block_mask(sees, rows, None, size, size, device=ends.device)


def switched_to_flex(model: Any, passes: Callable[[], bool]) -> bool:
    """Let the model attend by flex attention if `passes` then; else leave it as it was.

    Args:
        model: of transformers.
        passes: compares a tree's pass with plain ones, and takes a gradient.
    """
    before = model.config._attn_implementation
    with suppress(*_FAILURES):
        model.set_attn_implementation(_NAME)
        if passes():
            return True
    model.set_attn_implementation(before)
    return False
