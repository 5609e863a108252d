"""Slime's namespace as the shipped launch line resolves it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from focus.models import BUILTIN

__all__ = ("slime_args",)


def slime_args(**changes: Any) -> SimpleNamespace:
    """The page's settings, small enough for a test; `changes` overrides."""
    values: dict[str, Any] = {
        "hf_checkpoint": str(BUILTIN),
        "sglang_router_ip": "127.0.0.1",
        "sglang_router_port": 9,
        "sglang_server_concurrency": 512,
        "sglang_context_length": None,
        "router_policy": None,
        "use_distributed_post": False,
        "rollout_temperature": 1.0,
        "rollout_top_p": 1.0,
        "rollout_top_k": -1,
        "rollout_stop": None,
        "rollout_stop_token_ids": None,
        "rollout_max_response_len": 4096,
        "rollout_max_context_len": None,
        "rollout_batch_size": 4,
        "over_sampling_batch_size": 4,
        "n_samples_per_prompt": 1,
        "global_batch_size": 4,
        "num_rollout": 3,
        "num_steps_per_rollout": None,
        "custom_generate_function_path": "train_slime.generate",
        "custom_reward_post_process_path": "focus.integrations.slime.preserve_advantages",
        "custom_advantage_function_path": "focus.integrations.slime.advantages",
        "custom_pg_loss_reducer_function_path": "focus.integrations.slime.sum_policy_tokens",
        "custom_convert_samples_to_train_data_path": None,
        "custom_megatron_init_path": None,
        "megatron_config_path": None,
        "dynamic_sampling_filter_path": None,
        "use_rollout_logprobs": True,
        "compute_advantages_and_returns": True,
        "advantage_estimator": "grpo",
        "loss_type": "policy_loss",
        "eps_clip": 0.2,
        "eps_clip_high": 0.2,
        "value_clip": 0.2,
        "kl_coef": 0.0,
        "use_kl_loss": False,
        "kl_loss_coef": 0.0,
        "entropy_coef": 0.0,
        "normalize_advantages": False,
        "calculate_per_token_loss": False,
        "use_opd": False,
        "use_tis": False,
        "use_opsm": False,
        "get_mismatch_metrics": False,
        "use_rollout_routing_replay": False,
        "group_rm": False,
        "partial_rollout": False,
        "reward_key": None,
        "eval_reward_key": None,
        "log_reward_category": None,
        "log_passrate": False,
        "log_correct_samples": False,
        "apply_chat_template": False,
        "use_dynamic_batch_size": True,
        "max_tokens_per_gpu": 256,
        "eval_interval": None,
        "eval_datasets": [],
        "load": None,
        "save": None,
        "ckpt_step": None,
    }
    unknown = changes.keys() - values.keys()
    assert not unknown, f"Slime has no such arguments here: {sorted(unknown)}"
    return SimpleNamespace(**{**values, **changes})
