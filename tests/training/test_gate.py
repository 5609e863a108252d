"""May the critic steer? Numbers by hand, error bars against numpy, and how often luck passes."""

import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.training.gate import BaseRates, GateReport, GateSample, judge

RATES = BaseRates(0.5)


def sample(problem: object, prediction: float, outcome: float, depth: int = 0) -> GateSample:
    return GateSample(str(problem), depth, prediction, outcome)


def test_numbers_by_hand() -> None:
    """Two problems, four checkpoints, c = 0.5.

    (V − y)²: 0.04, 0.16, 0.09, 0.81, mean 0.275; (c − y)² = 0.25 each; gains 0.21, 0.09,
    0.16, −0.56, mean −0.025. Cluster sums of d − d̄: 0.35 and −0.35;
    SE = √(2/1 · (0.35² + 0.35²)) / 4 = 0.175.
    """
    rates = BaseRates(0.5, {0: 0.75, 1: 0.25})
    report = judge(
        [
            sample("a", 0.8, 1.0, depth=0),
            sample("a", 0.4, 0.0, depth=1),
            sample("b", 0.7, 1.0, depth=0),
            sample("b", 0.9, 0.0, depth=2),
        ],
        rates,
        z=2.0,
    )
    assert report.critic_brier == pytest.approx(0.275)
    assert report.constant_brier == pytest.approx(0.25)
    assert report.depth_brier == pytest.approx((0.0625 + 0.0625 + 0.0625 + 0.25) / 4)
    assert report.gain == pytest.approx(-0.025)
    assert report.gain_lower == pytest.approx(-0.025 - 2 * 0.175)
    assert (report.samples, report.problems) == (4, 2)
    assert report.mean_prediction == pytest.approx(0.7)
    assert report.mean_outcome == pytest.approx(0.5)
    assert report.hindsight_lower == pytest.approx(report.gain_lower)
    assert not report.passed


def numpy_lower(samples: list[GateSample], constant: float, z: float) -> float:
    """Cluster-robust mean (CR1) as in the textbooks."""
    y = np.array([s.outcome for s in samples])
    gains = (constant - y) ** 2 - (np.array([s.prediction for s in samples]) - y) ** 2
    names, group = np.unique([s.problem for s in samples], return_inverse=True)
    sums = np.bincount(group, weights=gains - gains.mean(), minlength=len(names))
    count = len(names)
    return float(gains.mean() - z * np.sqrt(count / (count - 1) * (sums**2).sum()) / len(samples))


SAMPLES = st.lists(
    st.builds(
        sample, st.integers(0, 5), st.floats(0, 1), st.sampled_from([0.0, 1.0]), st.integers(0, 3)
    ),
    min_size=3,
    max_size=40,
).filter(lambda samples: len({s.problem for s in samples}) > 1)


@given(SAMPLES, st.floats(0, 1), st.floats(0, 4))
def test_the_bound_is_the_textbooks(samples: list[GateSample], constant: float, z: float) -> None:
    report = judge(samples, BaseRates(constant), z=z)
    assert report.gain_lower == pytest.approx(numpy_lower(samples, constant, z), abs=1e-9)
    mean = sum(s.outcome for s in samples) / len(samples)
    assert report.hindsight_lower == pytest.approx(numpy_lower(samples, mean, z), abs=1e-9)
    assert report.gain == pytest.approx(report.constant_brier - report.critic_brier, abs=1e-12)


@given(SAMPLES)
def test_saying_everything_twice_tells_nothing_new(samples: list[GateSample]) -> None:
    once, twice = judge(samples, RATES), judge(samples * 2, RATES)
    assert twice.gain_lower == pytest.approx(once.gain_lower, abs=1e-12)


def good(count: int) -> list[GateSample]:
    return [sample(i, 0.9 if i % 2 else 0.1, float(i % 2)) for i in range(count)]


def test_a_good_critic_passes() -> None:
    report = judge(good(500), RATES)
    assert report.passed
    assert "beats the best constant" in report.reason


@pytest.mark.parametrize("count", [1, 2, 100, 499])
def test_fewer_than_500_checkpoints_never_open_it(count: int) -> None:
    report = judge(good(count), RATES)
    assert not report.passed
    assert report.reason == f"judged on {count} checkpoints; at least 500 are needed"


def test_one_problem_gives_no_bound() -> None:
    report = judge([sample("only", 0.9, 1.0)] * 600, RATES)
    assert report.gain_lower == report.hindsight_lower == float("-inf")
    assert not report.passed


def test_nothing_to_judge_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        judge([], RATES)


@given(
    value=st.floats(0, 1),
    fitted=st.floats(0, 1),
    rate=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_a_constant_never_opens_it_however_far_outcomes_have_drifted(
    value: float, fitted: float, rate: float, seed: int
) -> None:
    rng = random.Random(seed)
    samples = [sample(i // 4, value, float(rng.random() < rate)) for i in range(600)]
    report = judge(samples, BaseRates(fitted))
    assert not report.passed
    assert report.hindsight_lower <= 0
    assert report.reason.startswith(("not shown", "outcomes have drifted"))


def test_a_critic_that_knows_depth_only_is_exposed_by_the_depth_rates() -> None:
    by_depth = {0: 0.5, 1: 0.8, 2: 0.2}
    rng = random.Random(0)
    samples = [
        sample(i, by_depth[i % 3], float(rng.random() < by_depth[i % 3]), depth=i % 3)
        for i in range(900)
    ]
    report = judge(samples, BaseRates(0.5, by_depth))
    assert report.depth_brier == report.critic_brier < report.constant_brier


@pytest.mark.parametrize("depth", [0, 7])
def test_an_unknown_depth_has_the_constants_rate(depth: int) -> None:
    assert BaseRates(0.3, {0: 0.9}).at(depth) == (0.9 if depth == 0 else 0.3)


Draw = Callable[[random.Random], list[GateSample]]


def overconfident(rng: random.Random) -> list[GateSample]:
    """Exactly as bad as the constant: y ~ p + b·x, V = ½ + 2b·x, so the mean gain is 0.

    x and a shared mood belong to the problem; its four checkpoints are not independent.
    """
    samples = []
    for problem in range(125):
        x, mood = rng.choice((-1, 1)), rng.uniform(-0.3, 0.3)
        for _ in range(4):
            outcome = float(rng.random() < 0.5 + 0.1 * x + mood)
            samples.append(sample(problem, 0.5 + 0.2 * x, outcome))
    return samples


def noise(rng: random.Random) -> list[GateSample]:
    """Values that have nothing to do with outcomes."""
    return [sample(i // 4, rng.uniform(0.4, 0.6), float(rng.random() < 0.5)) for i in range(500)]


@pytest.mark.parametrize(("draw", "most"), [(overconfident, 0.08), (noise, 0.02)])
def test_luck_opens_it_about_as_often_as_the_bound_says(draw: Draw, most: float) -> None:
    """One-sided 5 % by design; 400 draws see 5 % ± 1.1 %."""
    rng = random.Random(1)
    opened = sum(judge(draw(rng), RATES).passed for _ in range(400))
    assert opened / 400 <= most


def test_the_bound_rises_with_evidence_and_falls_with_confidence() -> None:
    rng = random.Random(2)
    samples = [
        sample(i, 0.6 + 0.2 * y, float(rng.random() < 0.4 + 0.3 * y))
        for i, y in enumerate(rng.choices((0, 1), k=2000))
    ]
    bounds = [judge(samples, RATES, z=z).gain_lower for z in (0.0, 1.0, 1.645, 3.0)]
    assert all(above > below for above, below in pairwise(bounds))
    assert bounds[0] == pytest.approx(judge(samples, RATES).gain)


def test_a_report_survives_its_dictionary() -> None:
    report = judge(good(600), RATES)
    assert GateReport(**report.to_dict()) == report
