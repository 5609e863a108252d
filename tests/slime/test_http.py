"""A Slime-shaped job on this CPU, over HTTP to `focus serve`: real ids, real updates."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from focus.records import read_critic_records
from focus.records.jsonl import accepted_attempts

from .driver import TASK, Causal, Driver, paired_gain, served
from .host.convert import shipped, train_data
from .host.parallel import Layout
from .host.sample import Sample
from .host.trainer import train_actor

ROUNDS, PROMPTS = 3, 4


@pytest.fixture(autouse=True)
def _slime() -> None:
    """The driver lends Slime's modules itself."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served("--model", "builtin", "--max-batch", "16") as port:
        yield port


def independent(model: Causal, samples: list[Sample], prompts: int) -> dict[str, torch.Tensor]:
    """Gradient of the objective, token by token."""
    model.zero_grad()
    for sample in samples:
        tokens = torch.tensor(sample.tokens)
        start = len(tokens) - sample.response_length
        now = torch.log_softmax(model(tokens), -1)
        loss = torch.zeros((), dtype=torch.float64)
        for offset, (mask, behaviour) in enumerate(
            zip(sample.loss_mask, sample.rollout_log_probs, strict=True)  # type: ignore[arg-type]
        ):
            if mask:
                place = start + offset
                ratio = (now[place - 1, tokens[place]] - behaviour).exp()
                weight = sample.reward
                loss = loss - torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight)
        (loss / prompts).backward()
    named = model.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def test_three_rounds_of_four_prompts(port: int, tmp_path: Path) -> None:
    driver = Driver(port=port, folder=tmp_path, prompts=PROMPTS, tokens=96)
    start = copy.deepcopy(driver.model).double()
    with driver.process() as loop:
        made = [driver.round(loop) for _ in range(ROUNDS)]
        rewards = driver.accuracy(loop, TASK.problems("heldout", 6))
        _check_first_gradient(driver, start, made[0].samples)
    assert len(rewards) == 6
    assert set(rewards) <= {0.0, 1.0}
    versions = [{v for s in each.samples for v in s.weight_versions} for each in made]
    assert versions[1:] == [{"round-0"}, {"round-1"}]
    assert len(versions[0]) == 1
    for number, each in enumerate(made):
        wanted = set(range(number * PROMPTS, (number + 1) * PROMPTS))
        assert {sample.rollout_id for sample in each.samples} == wanted
        assert all(gradient.isfinite().all() for gradient in each.step.gradients.values())
    records = list(read_critic_records(driver.sink.path))
    assert accepted_attempts(driver.sink.path) == dict.fromkeys(range(ROUNDS), 0)
    assert {r.source.problem for r in records} == set(range(ROUNDS * PROMPTS))
    assert {r.source.policy_version for r in records if r.source.identity.round == 2} == {"round-1"}


def _check_first_gradient(driver: Driver, start: torch.nn.Module, samples: list[Sample]) -> None:
    """At the weights that sampled, ratios are 1 up to the engines' rounding."""
    assert isinstance(start, Causal)
    exact = independent(start, samples, PROMPTS)
    scale = max(float(gradient.abs().max()) for gradient in exact.values())
    assert scale > 0
    data = train_data(driver.args, samples)
    for layout in (Layout(1, 1), Layout(2, 1), Layout(1, 2), Layout(2, 2)):
        parcels, _ = shipped(driver.args, data, layout)
        (step,) = train_actor(driver.args, start, parcels, layout)
        for name, gradient in exact.items():
            difference = float((step.gradients[name] - gradient).abs().max())
            assert difference <= 1e-6 * max(1.0, scale), (layout, name)


def test_the_interval_of_a_paired_gain() -> None:
    before, after = [0.0, 0.0, 1.0, 1.0] * 25, [1.0, 0.0, 1.0, 1.0] * 25
    gain = paired_gain(before, after)
    assert (gain.before, gain.after) == (0.5, 0.75)
    assert gain.low == pytest.approx(0.25 - 1.96 * (0.1875 / 99) ** 0.5)
    assert gain.low + gain.high == pytest.approx(0.5)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_hooks_train(tmp_path: Path) -> None:
    """32 prompts x 20 rounds: held-out accuracy rises by 0.05 or more, beyond chance."""
    with served("--model", "builtin") as port:
        driver = Driver(port=port, folder=tmp_path, prompts=32, tokens=400, packing="path")
        problems = TASK.problems("heldout", 600)
        with driver.process() as loop:
            before = driver.accuracy(loop, problems)
            for _ in range(20):
                driver.round(loop)
            gain = paired_gain(before, driver.accuracy(loop, problems))
    assert gain.after - gain.before >= 0.05, gain
    assert gain.low > 0, gain
