"""The parts of the SDK that FOCUS stands on; it moves fast."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import tinker

CALLS: list[tuple[Callable[..., Any], set[str]]] = [
    (tinker.ServiceClient.__init__, {"base_url", "api_key"}),
    (tinker.ServiceClient.create_lora_training_client, {"base_model", "rank", "seed"}),
    (tinker.ServiceClient.create_training_client_from_state_with_optimizer, {"path"}),
    (tinker.ServiceClient.create_sampling_client, {"model_path", "base_model"}),
    (tinker.ServiceClient.close, {"status"}),
    (tinker.RestClient.__init__, {"base_url", "api_key"}),
    (tinker.RestClient.get_server_capabilities, set()),
    (tinker.SamplingClient.sample, {"num_samples", "sampling_params", "target_prompt_logprobs"}),
    (tinker.SamplingClient.compute_logprobs, {"prompt", "prompt_logprobs_last_n"}),
    (tinker.SamplingClient.get_tokenizer, set()),
    (tinker.TrainingClient.forward_backward, {"data", "loss_fn", "loss_fn_config"}),
    (tinker.TrainingClient.optim_step, {"optim_params"}),
    (tinker.TrainingClient.save_state, {"name", "ttl_seconds"}),
    (tinker.TrainingClient.save_weights_for_sampler, {"name", "ttl_seconds"}),
]


@pytest.mark.parametrize(("call", "wanted"), CALLS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_call_takes_what_is_passed_to_it(call: Callable[..., Any], wanted: set[str]) -> None:
    assert wanted <= inspect.signature(call).parameters.keys()


def test_values_have_the_fields_that_are_set() -> None:
    adam = {"learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm"}
    law = {"max_tokens", "seed", "stop", "temperature", "top_p", "top_k"}
    assert adam <= tinker.AdamParams.model_fields.keys()
    assert law <= inspect.signature(tinker.SamplingParams).parameters.keys()


def test_errors_stand_where_they_are_looked_for() -> None:
    for name in ("RequestFailedError", "APIStatusError", "APIConnectionError"):
        assert issubclass(getattr(tinker, name), tinker.TinkerError)
    assert tinker.types.RequestErrorCategory.User.value == "user"
