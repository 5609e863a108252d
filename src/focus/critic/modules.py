"""Value models as torch modules with one forward: inputs in, one logit per context out.

Imported on first use only, by value models and their trainer.
"""

from __future__ import annotations

from typing import Any

import torch

from focus.critic.reading import Reading

__all__ = ("OneLabel", "ScalarHead", "to_range")


class ScalarHead(torch.nn.Module):
    """A backbone, and a linear head on chosen places of its last hidden states."""

    def __init__(self, backbone: Any, head: torch.nn.Linear) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        # accelerate asks a module which of its layers are sharded as a whole.
        self._no_split_modules = getattr(backbone, "_no_split_modules", None)

    def forward(self, *, rows: list[int], places: list[int], **inputs: Any) -> torch.Tensor:
        """Logits [len(rows)] of the states at ``(rows, places)``."""
        hidden = self.backbone(**inputs, use_cache=False).last_hidden_state[rows, places]
        # The head is small and decides the value, so it is computed in float32 throughout,
        # also where sharding hands out its weights in another precision.
        with torch.autocast(hidden.device.type, enabled=False):
            weight, bias = self.head.weight.float(), self.head.bias.float()
            logits = torch.nn.functional.linear(hidden.float(), weight, bias)
        return logits[:, 0].clone()


class OneLabel(torch.nn.Module):
    """A sequence-classification model with a single label."""

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        self.classifier = classifier
        self._no_split_modules = getattr(classifier, "_no_split_modules", None)

    def forward(self, **inputs: Any) -> torch.Tensor:
        """Logits [batch]."""
        logits: torch.Tensor = self.classifier(**inputs).logits
        return logits[:, 0].float().clone()


def to_range(logits: torch.Tensor, reading: Reading) -> torch.Tensor:
    """Values in the range that `reading` declares."""
    low, high = reading.value_range
    if reading.squash == "clamp":
        return logits.clamp(low, high)
    return low + (high - low) * torch.sigmoid(logits)
