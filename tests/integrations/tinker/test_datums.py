"""What is sent: shifted by one, zeros on conditioning, advantages per prompt, no mask."""

from __future__ import annotations

from typing import Any

import pytest

from focus.errors import ConfigError
from focus.integrations.tinker import (
    PathRow,
    TinkerSettings,
    actor_datum,
    loss_config,
    verdict_datum,
)
from focus.integrations.tinker.datums import verdict_targets
from focus.integrations.tinker.settings import check_settings
from focus.training.settings import ActorSettings, TrainSettings

ROW = PathRow(
    tokens=(7, 8, 9, 10, 11),
    log_probs=(0.0, 0.0, -0.5, 0.0, -0.25),
    weights=(0.0, 0.0, 2.0, 0.0, -1.0),
)


def plain(datum: Any) -> dict[str, Any]:
    return {
        name: (tensor.dtype, tensor.shape, tensor.data)
        for name, tensor in datum.loss_fn_inputs.items()
    }


def test_a_datum_is_shifted_by_one_and_divided_by_prompts() -> None:
    datum = actor_datum(ROW, prompts=4)
    assert datum.model_input.to_ints() == [7, 8, 9, 10]
    assert plain(datum) == {
        "target_tokens": ("int64", [4], [8, 9, 10, 11]),
        "logprobs": ("float32", [4], [0.0, -0.5, 0.0, -0.25]),
        "advantages": ("float32", [4], [0.0, 0.5, 0.0, -0.25]),
    }


def test_a_verdict_is_read_at_the_last_input_and_not_shifted() -> None:
    datum = verdict_datum((7, 8, 9), (5, 6), target=0.25, weight=0.5)
    assert datum.model_input.to_ints() == [7, 8, 9]
    assert plain(datum) == {
        "target_tokens": ("int64", [3, 2], [0, 0, 0, 0, 5, 6]),
        "weights": ("float32", [3, 2], [0.0, 0.0, 0.0, 0.0, 0.125, 0.375]),
    }


def test_only_the_last_place_is_scored() -> None:
    targets = verdict_targets(4, (5, 6))
    assert (targets.shape, targets.data) == ([3, 2], [-1, -1, -1, -1, 5, 6])


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}),
        ("cispo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}),
        ("importance_sampling", None),
    ],
)
def test_thresholds_are_absolute_ratios(loss: Any, expected: Any) -> None:
    assert loss_config(loss, ActorSettings(clip_low=0.2, clip_high=0.28)) == expected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"temperature": 0.7}, "at temperature 1"),
        ({"actor": ActorSettings(minibatches=4)}, "one forward_backward and one optim_step"),
        ({"actor": ActorSettings(minibatches=1, epochs=2)}, "one forward_backward"),
        ({"actor": ActorSettings(minibatches=1, step_kl=1e-4)}, "step_kl"),
    ],
)
def test_what_tinker_cannot_do_is_refused(changes: dict[str, Any], reason: str) -> None:
    settings = TrainSettings(**{"actor": ActorSettings(minibatches=1), **changes})
    with pytest.raises(ConfigError, match=reason):
        check_settings(settings)


@pytest.mark.parametrize(
    "changes", [{"rank": 12}, {"rank": 0}, {"loss": "dro"}, {"keep_s": 60}, {"most_gap": 0.0}]
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TinkerSettings(**changes)
