"""The regression loss of a critic; imported on first use only."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from focus.critic.modules import to_range
from focus.critic.reading import Reading
from focus.integrations.critic.material import Example
from focus.integrations.critic.settings import CriticTraining

__all__ = ("regression_errors",)


def regression_errors(
    logits: torch.Tensor,
    examples: Sequence[Example],
    settings: CriticTraining,
    reading: Reading,
) -> torch.Tensor:
    """Weighted error of each example, w·(V − target)² or w·cross-entropy, not yet averaged.

    With `value_clip` c and the prediction p at collection, the squared error is
    max((V − target)², (clip(V, p − c, p + c) − target)²), as in proximal policy
    optimisation. Cross-entropy takes the target scaled to [0, 1].

    >>> from focus.records.records import CriticContext
    >>> one = Example("a", CriticContext(renderer="r", text=""), 1.0, 1.0, 0.5)
    >>> sure = torch.tensor([9.0]).log()                # V = 0.9
    >>> clipped = CriticTraining(value_clip=0.2)
    >>> round(regression_errors(sure, [one], clipped, Reading()).item(), 4)
    0.09
    """
    weights = torch.tensor([example.weight for example in examples], device=logits.device)
    targets = torch.tensor([example.target for example in examples], device=logits.device)
    low, high = reading.value_range
    if settings.loss == "bce":
        scaled = (targets - low) / (high - low)
        errors = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, scaled, reduction="none"
        )
        return weights * errors
    values = to_range(logits, reading)
    errors = (values - targets) ** 2
    if settings.value_clip is not None:
        priors = torch.tensor([example.prior for example in examples], device=logits.device)
        near = values.clamp(priors - settings.value_clip, priors + settings.value_clip)
        errors = torch.maximum(errors, (near - targets) ** 2)
    return weights * errors
