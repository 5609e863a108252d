"""Which of Slime's fields carries what from the collector to the trainer: the only table.

Slime sends a fixed list of fields from the rollout manager to the trainers and drops the
rest, so some values travel in fields that were made for something else. Nothing else in
this package names such a field.

    value                  on the sample             in the trainer      used by
    prompt identity        rollout_id                rollout_ids         Slime's scheduler
    behaviour log-probs    rollout_log_probs         rollout_log_probs   Slime's ratio
    weight of one edge     reward                    rewards             advantages
    weight of each token   teacher_log_probs         teacher_log_probs   advantages (path)
    collection success     metadata["raw_reward"]    raw_reward          Slime's log
    critic target          metadata[focus_target]    local_raw_reward    critic_targets
    targets of the prompt  metadata["round_number"]  round_number        critic_targets
    edges trained here     metadata[focus_nodes]     -                   preserve_advantages

`teacher_log_probs` is free because distillation is refused; like log-probs it arrives cut
for context parallelism. `raw_reward` holds success or targets, never both: a value in the
metadata would replace the targets that `preserve_advantages` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = (
    "BEHAVIOUR",
    "NODES",
    "NO_TARGET",
    "PROMPT",
    "SUCCESS",
    "TARGET",
    "TARGET_COUNT",
    "TOKEN_WEIGHTS",
    "WEIGHT",
    "Channel",
)

NO_TARGET = -1.0
"""Stands for "no critic target here" in a field of plain numbers; targets are >= 0."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One value's way from a sample to a trainer.

    Attributes:
        field: attribute of Slime's Sample; or, `in_metadata`, a key of its metadata.
        key: where the trainer's rollout_data holds it, one entry per sample; "" when it
            stays with the rollout manager.
        in_metadata: whether `field` is a metadata key.
    """

    field: str
    key: str
    in_metadata: bool = False

    def put(self, sample: Any, value: Any) -> None:
        """Load the value onto a sample."""
        if self.in_metadata:
            sample.metadata[self.field] = value
        else:
            setattr(sample, self.field, value)

    def get(self, sample: Any) -> Any:
        """The sample's value; None where it has none."""
        if self.in_metadata:
            return (getattr(sample, "metadata", None) or {}).get(self.field)
        return getattr(sample, self.field, None)

    def arrived(self, rollout_data: Mapping[str, Any]) -> Any:
        """The trainer's values, one per sample; None when Slime did not send them."""
        return rollout_data.get(self.key)


PROMPT = Channel("rollout_id", "rollout_ids")
BEHAVIOUR = Channel("rollout_log_probs", "rollout_log_probs")
WEIGHT = Channel("reward", "rewards")
TOKEN_WEIGHTS = Channel("teacher_log_probs", "teacher_log_probs")
SUCCESS = Channel("raw_reward", "raw_reward", in_metadata=True)
TARGET = Channel("focus_target", "local_raw_reward", in_metadata=True)
TARGET_COUNT = Channel("round_number", "round_number", in_metadata=True)
NODES = Channel("focus_nodes", "", in_metadata=True)
