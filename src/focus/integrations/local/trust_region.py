"""Steps that move a policy no further than allowed: long ones are taken back in part.

Adam moves every weight by about its rate, whatever the gradient says. A step on a failed rollout
can change what the policy does ten thousand times as much as one on a success, and a few such
steps in a row lose it (docs/decisions/0016-a-step-has-a-length.md). So a step's length is measured
where it counts, in nats on the tokens that it was taken on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from focus._extras import require

__all__ = ("TrustRegion", "divergence", "nats")

_MARGIN = 0.9
_TRIES = 8


def nats(log_ratio: Any) -> Any:
    """ρ − 1 − log ρ ≥ 0 of each token; its mean over tokens that `before` sampled estimates
    KL(before ‖ after), log ρ being after − before.

    Source: J. Schulman, Approximating KL Divergence (2020), k3.

    Args:
        log_ratio: log ρ, of any shape.
    """
    return log_ratio.exp() - 1 - log_ratio


def divergence(before: Any, after: Any) -> float:
    """Estimate of KL(before ‖ after): the mean of `nats`.

    Args:
        before, after: log-probs [tokens] of tokens that `before` sampled.

    Returns:
        Nats per token; 0 without tokens.

    >>> import torch
    >>> round(divergence(torch.tensor([-1.0, -2.0]), torch.tensor([-1.1, -2.0])), 6)
    0.002419
    """
    if not before.numel():
        return 0.0
    return float(nats(after.double() - before.double()).mean())


class TrustRegion:
    """Remembers where a step starts, and takes back what goes too far.

    Args:
        parameters: what an optimizer moves.
        most: nats per token that one step may move the policy by.
    """

    def __init__(self, parameters: Iterable[Any], most: float) -> None:
        self._parameters = [p for p in parameters if p.requires_grad]
        self._start = [p.detach().clone() for p in self._parameters]
        self._most = most

    def shorten(self, moved: Callable[[], float]) -> float:
        """Go back towards the start until `moved()` is within bounds; returns what is left.

        KL grows with the square of a short step, so the first guess is a share of √(most / KL). A
        step that no guess brings within bounds is taken back whole.

        Args:
            moved: nats per token between the start and the parameters as they are.

        Returns:
            Share of the step that was kept, in [0, 1].
        """
        kept = 1.0
        for _ in range(_TRIES):
            found = moved()
            if found <= self._most:
                return kept
            # Not finite: half way back says more than a square root would.
            share = _MARGIN * math.sqrt(self._most / found) if math.isfinite(found) else 0.5
            self._go_back(share)
            kept *= share
        if moved() <= self._most:
            return kept
        self._go_back(0.0)
        return 0.0

    def _go_back(self, share: float) -> None:
        torch = require("torch", extra="local")
        with torch.no_grad():
            for parameter, start in zip(self._parameters, self._start, strict=True):
                if share:
                    parameter.sub_(start).mul_(share).add_(start)
                else:
                    parameter.copy_(start)
