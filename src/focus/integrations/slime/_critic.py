"""Training the critic inside Slime, on FOCUS's targets.

Slime's critic predicts a value per token; the one at a sample's last prefix token is the
value of the checkpoint that the sample starts from. With `critic_targets` its loss is

    (1 / prompts) · Σ over prompts of the mean over their targets of (V − target)².
"""

from __future__ import annotations

from typing import Any

from focus._extras import require
from focus.errors import ConfigError
from focus.integrations.slime._channels import NO_TARGET, TARGET, TARGET_COUNT
from focus.integrations.slime._training import local_part

__all__ = ("critic_init", "critic_targets")


def critic_init(args: Any) -> None:
    """Install `critic_targets`; the critic role's ``custom_megatron_init_path``.

    Slime clears the critic's advantage hook after it has read the file of roles, and calls
    this later, in the critic's process only.
    """
    args.custom_advantage_function_path = f"{__package__}.critic_targets"


def critic_targets(args: Any, rollout_data: dict[str, Any]) -> None:
    """Advantage hook of the critic: one target at a sample's first response position.

    Everywhere else ``returns`` is the critic's own prediction and the loss mask is 0.
    Slime's per-prompt mask totals become the number of the prompt's targets.

    Raises:
        ConfigError: the samples bring no targets; make them with
            ``make_generate(..., critic="slime")``.
    """
    torch = require("torch", extra="local")
    targets, counts = TARGET.arrived(rollout_data), TARGET_COUNT.arrived(rollout_data)
    if targets is None or counts is None:
        raise ConfigError('no critic targets arrived; use make_generate(..., critic="slime")')
    returns, masks = [], []
    for target, values, mask, total in zip(
        targets,
        rollout_data["values"],
        rollout_data["loss_masks"],
        rollout_data["total_lengths"],
        strict=True,
    ):
        has_target = target != NO_TARGET
        first = torch.zeros_like(mask)
        first[0] = int(has_target)
        here = local_part(first, total, len(mask)).to(torch.bool)
        returns.append(torch.where(here, torch.full_like(values, target), values.detach()))
        masks.append(first)
    rollout_data["loss_masks"] = masks
    rollout_data["rollout_mask_sums"] = torch.tensor(
        [max(1, count) for count in counts], dtype=torch.float32, device=masks[0].device
    )
    rollout_data["returns"] = returns
    rollout_data["advantages"] = [
        torch.zeros_like(values, dtype=torch.float32) for values in returns
    ]
