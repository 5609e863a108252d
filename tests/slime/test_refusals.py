"""Settings that Slime accepts and FOCUS cannot honour, each by its flag, before any request."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from focus import Sampling
from focus.errors import ConfigError
from focus.integrations.slime import (
    advantages,
    make_evaluate,
    make_generate,
    preserve_advantages,
    sum_policy_tokens,
)

from .host.arguments import slime_args
from .walks import Walks, prompt

pytestmark = pytest.mark.anyio

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("--rollout-temperature", {"rollout_temperature": 0.0}),
    ("--rollout-top-p", {"rollout_top_p": 0.9}),
    ("--rollout-top-k", {"rollout_top_k": 50}),
    ("--rollout-stop", {"rollout_stop": ["\n"]}),
    ("--custom-reward-post-process-path", {"custom_reward_post_process_path": None}),
    ("--custom-advantage-function-path", {"custom_advantage_function_path": None}),
    ("--custom-pg-loss-reducer-function-path", {"custom_pg_loss_reducer_function_path": None}),
    (
        "--custom-convert-samples-to-train-data-path",
        {"custom_convert_samples_to_train_data_path": "mine.convert"},
    ),
    ("--use-rollout-logprobs", {"use_rollout_logprobs": False}),
    ("--disable-compute-advantages-and-returns", {"compute_advantages_and_returns": False}),
    ("--loss-type", {"loss_type": "sft_loss"}),
    ("--normalize-advantages", {"normalize_advantages": True}),
    ("--calculate-per-token-loss", {"calculate_per_token_loss": True}),
    ("--use-opd", {"use_opd": True}),
    ("--use-tis", {"use_tis": True}),
    ("--use-opsm", {"use_opsm": True}),
    ("--get-mismatch-metrics", {"get_mismatch_metrics": True}),
    ("--use-rollout-routing-replay", {"use_rollout_routing_replay": True}),
    ("--group-rm", {"group_rm": True}),
    ("--partial-rollout", {"partial_rollout": True}),
    ("--dynamic-sampling-filter-path", {"dynamic_sampling_filter_path": "mine.keep"}),
    ("--over-sampling-batch-size", {"over_sampling_batch_size": 8}),
    ("--global-batch-size", {"global_batch_size": 2}),
    ("--global-batch-size", {"n_samples_per_prompt": 2}),
    ("--reward-key", {"reward_key": "score"}),
    ("--eval-reward-key", {"eval_reward_key": "score"}),
    ("--log-reward-category", {"log_reward_category": "kind"}),
    ("--log-correct-samples", {"log_correct_samples": True}),
    (
        "--log-passrate",
        {"log_passrate": True, "n_samples_per_prompt": 2, "global_batch_size": 8},
    ),
    ("--use-dynamic-batch-size", {"use_dynamic_batch_size": False}),
    ("--apply-chat-template", {"apply_chat_template": True}),
    ("--advantage-estimator", {"advantage_estimator": "gspo"}),
    ("--advantage-estimator", {"advantage_estimator": "cispo"}),
    ("--advantage-estimator", {"advantage_estimator": "reinforce_plus_plus"}),
]


@pytest.mark.parametrize(("flag", "changes"), REFUSED, ids=[flag for flag, _ in REFUSED])
async def test_every_hook_names_the_flag_before_any_request(
    flag: str, changes: dict[str, Any]
) -> None:
    args, walks = slime_args(**changes), Walks()
    for make in (make_generate, make_evaluate):
        with pytest.raises(ConfigError, match=flag):
            await make(walks, profile="token_chunk")(args, prompt(0), {})
    with pytest.raises(ConfigError, match=flag):
        preserve_advantages(args, [])
    with pytest.raises(ConfigError, match=flag):
        advantages(args, {"rollout_log_probs": []})
    assert walks.given == []


async def test_all_flags_are_named_at_once() -> None:
    args = slime_args(group_rm=True, rollout_top_p=0.5, normalize_advantages=True)
    with pytest.raises(ConfigError) as caught:
        await make_generate(Walks(), profile="token_chunk")(args, prompt(0), {})
    assert all(
        flag in str(caught.value)
        for flag in ("--group-rm", "--rollout-top-p", "--normalize-advantages")
    )


@pytest.mark.parametrize(("kind", "refused"), [("ppo", False), (None, False), ("reinforce", True)])
async def test_the_newer_loss_flag_is_judged_where_it_exists(kind: Any, refused: bool) -> None:
    args = slime_args()
    args.pg_loss_type = kind
    if refused:
        with pytest.raises(ConfigError, match="--pg-loss-type"):
            preserve_advantages(args, [])
    else:
        preserve_advantages(args, [])


async def test_an_estimator_that_trains_a_critic_needs_targets() -> None:
    walks = Walks()
    with pytest.raises(ConfigError, match="--advantage-estimator"):
        await make_generate(walks, profile="token_chunk")(
            slime_args(advantage_estimator="ppo"), prompt(0), {}
        )
    hook = make_generate(walks, profile="token_chunk", critic="slime")
    with pytest.raises(ConfigError, match="--advantage-estimator"):
        await hook(slime_args(), prompt(0), {})
    with pytest.raises(ConfigError, match="--megatron-config-path"):
        await hook(slime_args(advantage_estimator="ppo"), prompt(0), {})
    assert walks.given == []


@pytest.mark.parametrize(
    ("flag", "changes", "sampling"),
    [
        (
            "--rollout-temperature: .*0.7.*1.0",
            {"rollout_temperature": 0.7},
            Sampling(temperature=1.0),
        ),
        ("--rollout-top-p: .*1.0.*0.9", {}, Sampling(top_p=0.9)),
        ("--rollout-top-k: .*-1.*40", {}, Sampling(top_k=40)),
        ("--rollout-stop-token-ids", {"rollout_stop_token_ids": [2]}, Sampling(stop=(3,))),
    ],
)
async def test_an_agent_with_another_law_is_refused_before_any_request(
    flag: str, changes: dict[str, Any], sampling: Sampling
) -> None:
    walks = Walks(sampling=sampling)
    with pytest.raises(ConfigError, match=flag):
        await make_generate(walks, profile="token_chunk")(slime_args(**changes), prompt(0), {})
    assert walks.requests == 0


@pytest.mark.parametrize(
    ("flag", "changes"),
    [
        ("--kl-coef", {"kl_coef": 0.1}),
        ("--entropy-coef", {"entropy_coef": 0.01}),
        ("--kl-loss-coef", {"use_kl_loss": True, "kl_loss_coef": 0.01}),
    ],
)
def test_terms_on_another_scale_warn(flag: str, changes: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=flag):
        preserve_advantages(slime_args(**changes), [])


def test_the_launch_of_the_tutorial_is_accepted_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert preserve_advantages(slime_args(), []) == ([], [])


def test_settings_that_this_slime_does_not_have_are_not_judged() -> None:
    assert preserve_advantages(SimpleNamespace(), []) == ([], [])


def test_the_reducer_refuses_a_mean_over_tokens() -> None:
    with pytest.raises(ConfigError, match="--calculate-per-token-loss"):
        sum_policy_tokens([3], [1], [], True)


async def test_a_missing_batch_size_is_named() -> None:
    args = slime_args()
    del args.rollout_batch_size
    with pytest.raises(ConfigError, match="--rollout-batch-size"):
        await make_generate(Walks(), profile="token_chunk")(args, prompt(0), {})
