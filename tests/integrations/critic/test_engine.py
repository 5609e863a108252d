"""The step is the equation's, however it is cut up; the state comes back bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from focus.critic.loading import starting_value_model
from focus.critic.local import ValueModel
from focus.critic.reading import Reading
from focus.errors import StoreError
from focus.integrations.critic.engine import Engine, load_module, save_state
from focus.integrations.critic.loss import regression_errors
from focus.integrations.critic.material import Example, Material
from focus.integrations.critic.settings import CriticTraining

from .samples import SETTINGS, context, prompt, small_model

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model"))


def engine_of(folder: Path, settings: CriticTraining = SETTINGS) -> Engine:
    engine = Engine(settings, device="cpu")
    model = starting_value_model(folder, like=context(1))
    torch.manual_seed(1)
    assert isinstance(model, ValueModel)
    torch.nn.init.normal_(model.head.weight, std=0.3)
    engine.take(model)
    return engine


PROMPTS = Material.of([prompt(n) for n in range(8)], SETTINGS, targets="recorded").train


def test_the_loss_is_the_weighted_mean_error(folder: Path) -> None:
    engine = engine_of(folder)
    examples = [
        replace(e, weight=w)
        for group, w in zip(PROMPTS[:2], (0.2, 0.9), strict=True)
        for e in group
    ]
    values = engine.values([example.context for example in examples])
    expected = sum(
        e.weight * (v - e.target) ** 2 for e, v in zip(examples, values, strict=True)
    ) / sum(e.weight for e in examples)
    found = engine.step([examples], rate=1e-3)
    assert found.loss == pytest.approx(expected, rel=1e-5)
    assert found.tokens > 0


def test_micro_batches_do_not_change_the_step(folder: Path) -> None:
    states = []
    for tokens in (8, 64, 8192):
        engine = engine_of(folder, replace(SETTINGS, batch_tokens=tokens))
        engine.step(PROMPTS, rate=1e-2)
        states.append(engine.state()[0])
    for other in states[1:]:
        for name, tensor in states[0].items():
            torch.testing.assert_close(tensor, other[name], rtol=0, atol=2e-5)


def test_records_without_weight_make_no_step(folder: Path) -> None:
    engine = engine_of(folder)
    before = {name: tensor.clone() for name, tensor in engine.state()[0].items()}
    weightless = [[replace(example, weight=0.0) for example in group] for group in PROMPTS]
    assert engine.step(weightless, rate=1.0).loss == 0.0
    assert all(torch.equal(tensor, before[n]) for n, tensor in engine.state()[0].items())


def test_the_state_comes_back_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    engine = engine_of(folder)
    for _ in range(3):
        engine.step(PROMPTS, rate=1e-3)
    save_state(engine.state(), tmp_path)
    contexts = [example.context for group in PROMPTS for example in group]
    trained = engine.values(contexts)
    straight = [engine.step(PROMPTS, rate=1e-3) for _ in range(3)]
    other = engine_of(folder)
    other.load(tmp_path)
    assert other.values(contexts) == trained
    assert [other.step(PROMPTS, rate=1e-3) for _ in range(3)] == straight
    plain = starting_value_model(folder, like=context(1))
    load_module(plain, tmp_path)
    assert plain.predict(contexts) == pytest.approx(trained, abs=1e-6)
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors"}


@pytest.mark.parametrize("name", ["module.safetensors", "optimizer.safetensors"])
def test_a_damaged_state_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    engine = engine_of(folder)
    engine.step(PROMPTS, rate=1e-3)
    save_state(engine.state(), tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreError, match=str(tmp_path)):
        engine.load(tmp_path)


def test_the_rate_rises_and_falls(folder: Path) -> None:
    engine = engine_of(folder, replace(SETTINGS, warmup=0.2))
    rate = engine.schedule(10)
    rates = [rate(step) for step in range(10)]
    assert rates[1] == max(rates) == pytest.approx(engine.peak_rate)
    assert rates[0] == pytest.approx(engine.peak_rate / 2)
    assert 0 < rates[-1] < 0.1 * engine.peak_rate
    assert rates[1:] == sorted(rates[1:], reverse=True)


def example(target: float, prior: float = 0.5) -> Example:
    return Example("x", context(1), target, 1.0, prior)


def errors(value: float, one: Example, settings: CriticTraining) -> float:
    logit = torch.logit(torch.tensor([value]))
    return regression_errors(logit, [one], settings, Reading()).item()


def test_clipping_keeps_the_larger_error() -> None:
    """Old 0.5, clip 0.2: at 0.9 with target 1 the clipped 0.7 counts, at 0.6 nothing is cut."""
    clipped = CriticTraining(value_clip=0.2)
    assert errors(0.9, example(1.0), clipped) == pytest.approx(0.09, abs=1e-6)
    assert errors(0.6, example(1.0), clipped) == pytest.approx(0.16, abs=1e-6)
    assert errors(0.9, example(0.0), clipped) == pytest.approx(0.81, abs=1e-6)


def test_cross_entropy_is_least_at_the_target() -> None:
    settings = CriticTraining(loss="bce")
    at = {value: errors(value, example(0.3), settings) for value in (0.1, 0.2, 0.3, 0.4, 0.5)}
    assert min(at, key=lambda value: at[value]) == 0.3
