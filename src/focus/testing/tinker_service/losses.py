"""The service's losses, summed over tokens: whoever sends a datum owns the normalisation.

With lp the learner's log-prob, r = exp(lp − logprobs) and A the advantages:

    cross_entropy         −Σ weights · lp
    importance_sampling   −Σ r · A
    ppo                   −Σ min(r · A, clip(r, low, high) · A)
    cispo                 −Σ stop_gradient(clip(r, low, high)) · lp · A
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from focus.testing.tinker_service.wire import BadRequest, Row

__all__ = ("checked", "summed_loss")

_POLICY = frozenset({"target_tokens", "logprobs", "advantages"})
_INPUTS = {
    "cross_entropy": frozenset({"target_tokens", "weights"}),
    "importance_sampling": _POLICY,
    "ppo": _POLICY,
    "cispo": _POLICY,
}
_THRESHOLDS = {"ppo": (0.8, 1.2), "cispo": (0.0, 4.0)}


def checked(loss_fn: str, config: Mapping[str, float], row: Row) -> None:
    """Refuse a datum that a loss cannot read, or that names what no loss reads.

    Raises:
        BadRequest: an unknown loss, input or setting, or one that is missing.
    """
    if loss_fn not in _INPUTS:
        raise BadRequest(f"unknown loss {loss_fn!r}; known: {', '.join(sorted(_INPUTS))}")
    if row.inputs.keys() != _INPUTS[loss_fn]:
        raise BadRequest(f"{loss_fn} reads {sorted(_INPUTS[loss_fn])}, got {sorted(row.inputs)}")
    known = {"clip_low_threshold", "clip_high_threshold"} if loss_fn in _THRESHOLDS else set()
    if not config.keys() <= known:
        raise BadRequest(f"{loss_fn} knows {sorted(known)}, got {sorted(config)}")
    if not row.tokens:
        raise BadRequest("a datum without input tokens")


def summed_loss(loss_fn: str, config: Mapping[str, float], log_probs: Any, row: Row) -> Any:
    """The loss of one datum, with gradient; `log_probs` has the shape of its targets."""

    def given(name: str) -> Any:
        return torch.tensor(row.inputs[name]).to(log_probs)

    if loss_fn == "cross_entropy":
        return -(given("weights") * log_probs).sum()
    advantages = given("advantages")
    ratio = torch.exp(log_probs - given("logprobs"))
    if loss_fn == "importance_sampling":
        return -(ratio * advantages).sum()
    low, high = _THRESHOLDS[loss_fn]
    low = config.get("clip_low_threshold", low)
    high = config.get("clip_high_threshold", high)
    clipped = ratio.clamp(low, high)
    if loss_fn == "ppo":
        return -torch.minimum(ratio * advantages, clipped * advantages).sum()
    return -(clipped.detach() * log_probs * advantages).sum()
