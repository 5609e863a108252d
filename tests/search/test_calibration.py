import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.search.allocators.calibration import (
    BetaBernoulli,
    Gaussian,
    Posterior,
    derivative_gain,
    one_step_gain,
    preposterior_gain,
)
from focus.tree import Stats


def seen(count: int, mean: float = 0.0, variance: float = 0.0) -> Stats:
    return Stats(count, mean, variance * max(0, count - 1))


def gain(posterior: Posterior, count: int, pending: int = 0, strength: float = 1.0) -> float:
    return derivative_gain(posterior, count=count, pending=pending, prior_strength=strength)


@pytest.mark.parametrize(
    ("value", "count", "mean", "pending", "mu", "prior_error", "variance", "score"),
    [
        (0.5, 0, 0.0, 0, 0.5, 0.125, 0.25, 0.0),
        (0.5, 0, 0.0, 1, 0.5, 0.125, 0.25, 0.03125),
        (0.5, 1, 1.0, 0, 0.75, 0.125, 0.1875, 0.03125),
        (0.5, 1, 1.0, 1, 0.75, 0.125, 0.1875, 0.016204),
        (0.5, 2, 0.5, 0, 0.5, 0.0625, 0.25, 0.013889),
        (0.5, 2, 1.0, 0, 0.833333, 0.145833, 0.138889, 0.015947),
        (0.5, 3, 1 / 3, 0, 0.375, 0.0625, 0.234375, 0.009277),
        (0.5, 3, 1.0, 0, 0.875, 0.1625, 0.109375, 0.008496),
        (0.9, 1, 0.0, 0, 0.45, 0.285, 0.2475, 0.07125),
        (0.9, 1, 1.0, 0, 0.95, 0.018333, 0.0475, 0.004583),
        (0.1, 2, 1.0, 0, 0.7, 0.4125, 0.21, 0.038333),
        (1.0, 3, 1.0, 0, 1.0, 0.0, 0.0, 0.0),
    ],
)
def test_beta_vectors(value, count, mean, pending, mu, prior_error, variance, score):
    posterior = BetaBernoulli().posterior(value, seen(count, mean), prior_strength=1.0)
    assert posterior.mean == pytest.approx(mu, abs=1e-6)
    assert posterior.prior_error == pytest.approx(prior_error, abs=1e-6)
    assert posterior.return_variance == pytest.approx(variance, abs=1e-6)
    assert gain(posterior, count, pending) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(("strength", "score"), [(0.5, -0.333333), (2, 0.020833), (4, 0.009375)])
def test_beta_gain_of_an_unmeasured_checkpoint_follows_the_prior_strength(strength, score):
    posterior = BetaBernoulli().posterior(0.5, seen(0), prior_strength=strength)
    assert gain(posterior, 0, strength=strength) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "stats", "mu", "prior_error", "variance", "score"),
    [
        (0.5, seen(0), 0.5, 0.25, 0.5, 0.0),
        (0.5, seen(1, 1.0), 0.75, 0.1875, 0.375, 0.046875),
        (0.5, seen(2, 0.5, 0.5), 0.5, 0.166667, 0.666667, 0.037037),
        (2.0, seen(3, 5.0, 4.0), 4.25, 6.0625, 5.0, 0.345703),
    ],
)
def test_gaussian_vectors(value, stats, mu, prior_error, variance, score):
    posterior = Gaussian().posterior(value, stats, prior_strength=1.0)
    assert posterior.mean == pytest.approx(mu, abs=1e-6)
    assert posterior.prior_error == pytest.approx(prior_error, abs=1e-6)
    assert posterior.return_variance == pytest.approx(variance, abs=1e-6)
    assert gain(posterior, stats.count) == pytest.approx(score, abs=1e-6)


def test_gaussian_floor_keeps_equal_returns_from_looking_certain():
    posterior = Gaussian(variance_floor=0.3).posterior(0.5, seen(2, 0.5), prior_strength=1.0)
    assert posterior.return_variance == pytest.approx(0.3 * 4 / 3)


@pytest.mark.parametrize("settings", [{"prior_variance": -1.0}, {"variance_floor": 0.0}])
def test_gaussian_refuses_variances_that_are_none(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Gaussian(**settings)


def test_beta_clamps_what_lies_outside_its_range():
    wild = BetaBernoulli().posterior(1.5, seen(2, -3.0), prior_strength=1.0)
    assert wild == BetaBernoulli().posterior(1.0, seen(2, 0.0), prior_strength=1.0)


@pytest.mark.parametrize(
    ("value", "stats", "exact"),
    [(0.5, seen(0), 0.03125), (0.5, seen(1, 1.0), 0.02257), (0.9, seen(1, 0.0), 0.04646)],
)
def test_one_step_vectors(value, stats, exact):
    posterior = BetaBernoulli().posterior(value, stats, prior_strength=1.0)
    drop = one_step_gain(posterior, count=stats.count, pending=0, prior_strength=1.0)
    assert drop == pytest.approx(exact, abs=5e-6)


models = st.sampled_from([BetaBernoulli(), Gaussian()])
units = st.floats(0.01, 0.99)
strengths = st.floats(0.1, 8)


@given(model=models, value=units, mean=units, count=st.integers(0, 30), strength=strengths)
def test_derivative_is_minus_the_slope_of_the_error(model, value, mean, count, strength):
    posterior = model.posterior(value, seen(count, mean, 0.2), prior_strength=strength)

    def error(n: float) -> float:
        bias = strength**2 * posterior.prior_error
        return (bias + n * posterior.return_variance) / (strength + n) ** 2

    h = 1e-4 * (strength + count)
    slope = (error(count + h) - error(count - h)) / (2 * h)
    assert gain(posterior, count, strength=strength) == pytest.approx(-slope, rel=1e-4, abs=1e-6)


@given(model=models, value=units, mean=units, count=st.integers(0, 9), strength=strengths)
def test_one_step_gains_telescope(model, value, mean, count, strength):
    posterior = model.posterior(value, seen(count, mean, 0.2), prior_strength=strength)
    steps = [
        one_step_gain(posterior, count=count, pending=m, prior_strength=strength) for m in range(5)
    ]
    later = [
        one_step_gain(posterior, count=count + 1, pending=m, prior_strength=strength)
        for m in range(4)
    ]
    assert steps[1:] == pytest.approx(later)


@given(value=units, count=st.integers(0, 30), strength=st.floats(0.1, 8), model=models)
def test_sign_of_the_derivative_where_evidence_agrees(value, count, strength, model):
    agreeing = seen(count, value, value * (1 - value))
    score = gain(model.posterior(value, agreeing, prior_strength=strength), count, 0, strength)
    sign = strength**2 - strength + count**2 + count
    if abs(sign) > 1e-9:
        assert math.copysign(1, score) == math.copysign(1, sign)


@given(value=units, count=st.integers(0, 6), strength=strengths, data=st.data())
def test_preposterior_equals_the_average_over_all_pending_outcomes(value, count, strength, data):
    successes = data.draw(st.integers(0, count))
    pending = data.draw(st.integers(0, 4))
    alpha = strength * value + successes
    total = strength + count

    def posterior_variance(a: float, t: float) -> float:
        return a * (t - a) / t**2 / (t + 1)

    def expected_variance(draws: int) -> float:
        expected = 0.0
        for outcomes in itertools.product((0, 1), repeat=draws):
            a, t, chance = alpha, total, 1.0
            for outcome in outcomes:
                chance *= a / t if outcome else 1 - a / t
                a, t = a + outcome, t + 1
            expected += chance * posterior_variance(a, t)
        return expected

    mean = successes / count if count else 0.0
    score = preposterior_gain(
        BetaBernoulli().posterior(value, seen(count, mean), prior_strength=strength),
        count=count,
        pending=pending,
        prior_strength=strength,
    )
    drop = expected_variance(pending) - expected_variance(pending + 1)
    assert score == pytest.approx(drop, rel=1e-6, abs=1e-12)


@given(count=st.integers(2, 20), pending=st.integers(0, 9), variance=st.floats(0.01, 4))
def test_preposterior_of_a_gaussian_is_the_drop_of_its_posterior_variance(count, pending, variance):
    posterior = Gaussian().posterior(0.5, seen(count, 0.3, variance), prior_strength=2.0)
    score = preposterior_gain(posterior, count=count, pending=pending, prior_strength=2.0)
    behind = 2.0 + count + pending
    assert score == pytest.approx(variance / behind - variance / (behind + 1))


@given(model=models, value=units, mean=units, count=st.integers(0, 9), pending=st.integers(0, 9))
def test_pending_work_never_raises_a_preposterior_gain(model, value, mean, count, pending):
    posterior = model.posterior(value, seen(count, mean, 0.2), prior_strength=1.0)
    now, later = (
        preposterior_gain(posterior, count=count, pending=m, prior_strength=1.0)
        for m in (pending, pending + 1)
    )
    assert later < now
