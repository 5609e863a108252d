"""The trainer's gradient is the objective's, however samples, batches and ranks are cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from focus.records import Packing

from .forest import TEMPERATURE, ToyModel, expected, grow, samples
from .host.arguments import slime_args
from .host.convert import shipped, train_data
from .host.parallel import Layout
from .host.trainer import Step, train_actor

LAYOUTS = [Layout(1, 1), Layout(2, 1), Layout(1, 2), Layout(2, 2), Layout(1, 4)]


def trained(
    model: ToyModel, forest: Any, packing: Packing, layout: Layout, *, most: int = 96
) -> Step:
    args = slime_args(
        rollout_temperature=TEMPERATURE,
        rollout_batch_size=len(forest),
        over_sampling_batch_size=len(forest),
        global_batch_size=len(forest),
        max_tokens_per_gpu=most,
        eps_clip=0.2,
        eps_clip_high=0.28,
    )
    parcels, schedule = shipped(args, train_data(args, samples(forest, packing)), layout)
    assert schedule.dropped == 0
    (step,) = train_actor(args, model, parcels, layout)
    return step


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"dp{layout.dp}-cp{layout.cp}")
@pytest.mark.parametrize("packing", ["segment", "path"])
@pytest.mark.parametrize("seed", [0, 1])
def test_gradient_equals_an_independent_computation(
    packing: Packing, layout: Layout, seed: int
) -> None:
    model = ToyModel(seed=seed)
    forest = grow(model, 4, seed=seed)
    loss, gradients, sides = expected(model, forest, low=0.2, high=0.28)
    assert sides == {"low", "high"}
    step = trained(model, forest, packing, layout)
    assert step.loss == pytest.approx(loss, abs=1e-6 * max(1.0, abs(loss)))
    scale = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, gradient in gradients.items():
        assert float((step.gradients[name] - gradient).abs().max()) <= 1e-6 * max(1.0, scale)


@pytest.mark.parametrize("most", [16, 64, 100_000])
def test_micro_batches_do_not_matter(most: int) -> None:
    model = ToyModel()
    forest = grow(model, 3, seed=5)
    whole = trained(model, forest, "segment", Layout(1, 1), most=1_000_000)
    cut = trained(model, forest, "path", Layout(1, 1), most=most)
    for name, gradient in whole.gradients.items():
        torch.testing.assert_close(cut.gradients[name], gradient, atol=1e-6, rtol=1e-6)
