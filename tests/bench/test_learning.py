"""The learning bench: what its figures mean, and that every method can be run."""

import doctest

import pytest
from bench.learning import report
from bench.learning.methods import METHODS
from bench.learning.tasks import FAMILIES
from bench.learning.trial import TrialSpec, run_trial
from hypothesis import given
from hypothesis import strategies as st

from focus.credit import Estimator
from focus.search import Search

accuracies = st.lists(st.floats(0, 1), min_size=2, max_size=8)


def curve(accuracies, *, method="m", seed=0, step=100):
    spec = {"method": method, "seed": seed, "learning_rate": 1e-4, "prompts": 8, "minibatches": 2}
    points = [{"tokens": step * i, "accuracy": a} for i, a in enumerate(accuracies)]
    return {"spec": {**spec, "task": "chain-5"}, "points": points}


def test_examples_of_the_report():
    assert doctest.testmod(report).failed == 0


@given(accuracies)
def test_an_area_lies_between_the_extremes(values):
    assert min(values) - 1e-9 <= report.area(curve(values)) <= max(values) + 1e-9


@given(accuracies, st.floats(0, 1))
def test_tokens_to_a_threshold_are_where_the_curve_first_crosses_it(values, threshold):
    tokens = report.tokens_to(curve(values), threshold)
    if tokens is None:
        assert max(values) < threshold
    else:
        before = values[: int(tokens // 100) + (tokens % 100 > 0)]
        assert all(value < threshold for value in before)


def test_methods_are_ranked_by_area_and_keep_their_seeds():
    curves = [curve([0.2, low], seed=s) for s, low in enumerate((0.4, 0.5))]
    curves += [curve([0.2, 0.9], method="better", seed=s) for s in range(2)]
    best, worst = report.summaries(curves)
    assert (best.method, worst.method) == ("better", "m")
    assert best.area_ci95 == pytest.approx((0.55, 0.55))
    assert worst.area_ci95[0] == pytest.approx(0.3)
    assert best.tokens_to_threshold == pytest.approx(100 * (0.81 - 0.2) / 0.7)
    assert worst.tokens_to_threshold is None


def test_tuning_takes_the_largest_area():
    low, high = curve([0.2, 0.3]), curve([0.2, 0.6], seed=1)
    assert report.best_rates([low, high])["m"] == high["spec"]


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("length", [30.0, 200.0, 5000.0])
def test_every_method_makes_a_search_at_any_length(name, length):
    method = METHODS[name]
    assert isinstance(method.search(640, length), Search)
    assert isinstance(method.credit, Estimator)
    assert method.about


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_families_are_disjoint_by_split_and_fit_the_allowance(name):
    family = FAMILIES[name]
    task = family.make_task()
    train, held_out = task.problems("train", 20), task.problems("heldout", 20)
    if family.game is None:
        assert not {p.key for p in train} & {p.key for p in held_out}
    assert task.allowance_tokens % task.segment_tokens == 0


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("method", ["grpo", "focus", "vine-ppo", "spo-tree", "tree-grpo"])
async def test_a_trial_draws_its_curve(method, tmp_path):
    spec = TrialSpec(
        task="chain-5",
        model="builtin",
        method=method,
        prompts=2,
        minibatches=1,
        tokens_per_prompt=200,
        budget=600,
        evaluations=2,
        eval_problems=4,
        critic_steps=1,
    )
    await run_trial(spec, tmp_path / f"{spec.name}.json", device="cpu")
    (found,) = report.read_curves(tmp_path)
    assert [point["tokens"] >= 600 for point in found["points"]] == [False, True]
