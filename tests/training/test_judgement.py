"""A judgement's intervals cover, its verdicts have reasons, and it comes back from JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import numpy as np
import pytest

from focus.errors import SchemaError
from focus.training.bootstrap import ClusterBootstrap
from focus.training.gate import BaseRates, GateSample, judge
from focus.training.judgement import Judgement, Previous, examine, read_judgement

RATES = BaseRates(0.5, {0: 0.5, 1: 0.5})


def draw(
    chance: Callable[[float], float], seed: int, *, problems: int = 300, each: int = 2
) -> list[GateSample]:
    """Outcomes of a true probability p per problem; the critic says `chance(p)`."""
    rng = random.Random(seed)
    found = []
    for problem in range(problems):
        p = rng.random()
        for depth in range(each):
            outcome = float(rng.random() < p)
            found.append(GateSample(str(problem), depth, chance(p), outcome))
    return found


def test_a_calibrated_critic_may_steer_and_its_bars_lie_on_the_diagonal() -> None:
    found = examine(draw(lambda p: p, 1), RATES)
    assert found.verdict.steering
    whole = found.parts["all"]
    assert whole.overconfidence.low < 0 < whole.overconfidence.high
    assert whole.bias.low < 0 < whole.bias.high
    assert whole.brier.mean == pytest.approx(1 / 6, abs=0.02)
    inside = [bar.outcome.low <= bar.prediction <= bar.outcome.high for bar in found.reliability]
    assert sum(inside) >= 8
    assert sum(bar.samples for bar in found.reliability) == 600


def test_roots_and_inner_checkpoints_are_told_apart() -> None:
    samples = draw(lambda p: p, 2)
    found = examine(samples, RATES)
    assert found.parts["root"].samples + found.parts["inner"].samples == len(samples)
    for name, mask in (("root", 0), ("inner", 1)):
        own = [(s.prediction - s.outcome) ** 2 for s in samples if s.depth == mask]
        assert found.parts[name].brier.mean == pytest.approx(np.mean(own))


def test_extreme_values_are_over_confident_though_they_beat_the_constant() -> None:
    found = examine(draw(lambda p: float(p > 0.5), 3), BaseRates(0.0))
    assert found.gate.gain > 0
    sharp = examine(draw(lambda p: 0.02 + 0.96 * (p > 0.5), 3, problems=3000), RATES)
    assert sharp.parts["all"].overconfidence.low > 0.02
    assert not sharp.verdict.steering
    loud = examine(
        [
            GateSample(str(i), 0, float(i % 2), float(i % 2 if i % 10 else 1 - i % 2))
            for i in range(600)
        ],
        RATES,
    )
    assert loud.gate.passed
    assert loud.verdict.reason.startswith("over-confident")


def test_a_critic_worse_than_the_current_one_does_not_replace_it() -> None:
    samples = draw(lambda p: 0.25 + 0.5 * p, 4, problems=1500)
    best = [(s.prediction - 0.25) / 0.5 for s in samples]
    found = examine(samples, RATES, previous=Previous("critic-0003", True, best))
    assert found.gate.passed
    assert "worse than critic-0003" in found.verdict.reason
    assert found.keeps_previous
    idle = examine(samples, RATES, previous=Previous("critic-0003", False, best))
    assert idle.verdict.steering
    constant = Previous("critic-0002", True, [0.5] * len(samples))
    assert not examine(samples, RATES, previous=constant).keeps_previous
    with pytest.raises(ValueError, match="shorter"):
        examine(samples, RATES, previous=Previous("critic-0003", True, best[1:]))


def test_the_gate_is_the_one_of_the_training_run() -> None:
    for seed in range(5):
        samples = draw(lambda p: 0.45 + 0.1 * p, seed)
        assert examine(samples, RATES).gate == judge(samples, RATES)
        if not judge(samples, RATES).passed:
            assert examine(samples, RATES).verdict.reason == judge(samples, RATES).reason


def test_it_comes_back_from_json() -> None:
    samples = draw(lambda p: p, 5)
    previous = Previous("critic-0001", True, [0.5] * len(samples))
    found = examine(samples, RATES, previous=previous, outcomes={"rounds": [3]})
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read_judgement(plain, where="here") == found
    for name in plain:
        with pytest.raises(SchemaError, match="here"):
            read_judgement({key: v for key, v in plain.items() if key != name}, where="here")


def test_few_problems_give_wide_intervals_and_one_gives_no_gate() -> None:
    one = [GateSample("same", depth, 0.9, 1.0) for depth in range(600)]
    found = examine(one, RATES)
    assert isinstance(found, Judgement)
    assert not found.verdict.steering


def test_the_clustered_interval_covers_where_the_naive_one_does_not() -> None:
    """Twenty samples of each of 40 problems share their outcome: n is 40, not 800."""
    covered = naive = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        per_problem = rng.normal(size=40)
        values = np.repeat(per_problem, 20).tolist()
        clusters = [str(i) for i in range(40) for _ in range(20)]
        low, high = ClusterBootstrap(clusters, draws=400, seed=seed).interval(values)
        covered += low <= 0 <= high
        low, high = ClusterBootstrap([str(i) for i in range(800)], draws=400).interval(values)
        naive += low <= 0 <= high
    assert covered >= 88
    assert naive < 70


def test_an_interval_of_a_part_is_that_of_the_part_alone() -> None:
    values = [float(i % 3) for i in range(60)]
    clusters = [str(i // 2) for i in range(60)]
    mask = [i < 40 for i in range(60)]
    low, high = ClusterBootstrap(clusters).interval(values, where=mask)
    alone = ClusterBootstrap(clusters[:40]).interval(values[:40])
    assert (low, high) == pytest.approx(alone, abs=0.1)
    with pytest.raises(ValueError, match="no values"):
        ClusterBootstrap(clusters).interval(values, where=[False] * 60)
