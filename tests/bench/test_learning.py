"""The learning bench: what its figures mean, and that every method can be run."""

import doctest
import json
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from bench.learning import (
    books,
    claims,
    gradients,
    mixed,
    plans,
    ppo,
    registered,
    report,
    sweep,
    warm,
)
from bench.learning.comparison import Comparison, Grid, read_registration
from bench.learning.methods import METHODS
from bench.learning.tasks import FAMILIES, gym, modular
from bench.learning.trial import TrialSpec, run_trial
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.credit import Estimator
from focus.errors import ConfigError
from focus.search import Search

RESULTS = Path(mixed.__file__).parents[1] / "results"
accuracies = st.lists(st.floats(0, 1), min_size=2, max_size=8)


def curve(accuracies, *, method="m", seed=0, step=100):
    spec = {"method": method, "seed": seed, "learning_rate": 1e-4, "prompts": 8, "minibatches": 2}
    points = [
        {"tokens": step * i, "prefill": i, "wall_s": 2.0 * i, "accuracy": a, "prompts": i}
        | {"mixed_ratio": 0.5 if i else None}
        for i, a in enumerate(accuracies)
    ]
    return {"spec": {**spec, "task": "chain-5", "model": ""}, "points": points}


@pytest.mark.parametrize(
    "module", [books, claims, gradients, gym, mixed, modular, plans, ppo, registered, report]
)
def test_examples_in_the_text(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


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
    share = (0.81 - 0.2) / 0.7
    assert best.to_threshold == pytest.approx(
        {"tokens": 100 * share, "priced": 100.1 * share, "wall_s": 2 * share}
    )
    assert set(worst.to_threshold.values()) == {None}
    assert worst.to_threshold_ci95["tokens"] == (None, None)
    assert best.mixed_ratio == 0.5


def mixed_of(seeds, folder, methods="grpo,focus"):
    """The shares of a folder whose trials are all there."""
    command = ["mixed", "--seeds", str(seeds), "--methods", methods, "--out", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command)
        assert mixed.main() == 0
    return json.loads((folder / "mixed-chain-5.json").read_text())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=3))
def test_the_prompts_of_all_seeds_asked_for_count_together_and_no_others(counts):
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "frozen").mkdir()
        for seed, pair in enumerate([*counts, (5, 5)]):
            for method, number in zip(("grpo", "focus"), pair, strict=True):
                spec = TrialSpec(
                    task="chain-5",
                    method=method,
                    seed=seed,
                    budget=150_000,
                    evaluations=2,
                    frozen=True,
                )
                start = {"prompts": 0, "mixed_ratio": None, "tokens": 0}
                end = {"prompts": 10, "mixed_ratio": number / 10, "tokens": 1000 + seed}
                made = {"spec": asdict(spec), "points": [start, end]}
                (folder / "frozen" / f"{spec.name}.json").write_text(json.dumps(made))
        flat, ours = mixed_of(len(counts), folder)
        assert mixed_of(len(counts), folder, "focus,grpo")[1]["gain"] == -ours["gain"]
    assert (flat["seeds"], flat["prompts"]) == (len(counts), 10 * len(counts))
    assert flat["share"] == pytest.approx(sum(flat for flat, _ in counts) / 10 / len(counts))
    assert ours["share"] == pytest.approx(sum(ours for _, ours in counts) / 10 / len(counts))
    assert flat["tokens_per_prompt"] == pytest.approx(100 + (len(counts) - 1) / 20)
    assert ours["more_tokens"] == 0


def test_the_published_mixed_shares_are_those_of_the_published_curves():
    page = json.loads((RESULTS / "2026-11-30-mixed-chain-5.json").read_text())
    by_method = {row["method"]: [] for row in page["mixed"]}
    for one in page["curves"]:
        by_method[one["spec"]["method"]].append(one)
    found = [asdict(one) for one in mixed.mixed_shares(by_method)]
    for one, row in zip(found, page["mixed"], strict=True):
        assert one.pop("gain_ci95") == pytest.approx(row.pop("gain_ci95"))
        assert one == pytest.approx(row)


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


spendings = st.lists(st.floats(1, 1e6) | st.just(float("inf")), min_size=1, max_size=5)


@given(spendings, st.floats(1, 1e6))
def test_a_claim_is_made_against_the_best_peer_and_turns_around(peer, ours):
    worse = [2 * spent for spent in peer]
    (found,) = claims.claims({"a": worse, "b": peer, "us": [ours]}, peers={"a", "b"}, draws=200)
    median = sorted(peer)[(len(peer) - 1) // 2]
    if median == float("inf"):
        assert found.ratio is None
    else:
        assert found.peer == "b"
        assert found.ratio == pytest.approx(median / ours)
        low, high = found.ratio_ci95
        assert low is not None
        assert low <= found.ratio <= (found.ratio if high is None else high)


def test_without_a_peer_nothing_is_claimed():
    assert claims.claims({"us": [1.0]}, peers={"a"}) == []


def a_comparison(**changes):
    settings = {"name": "c", "task": "chain-5", "methods": ("grpo", "ppo"), "grid": a_grid()}
    settings |= {"budget": 1000, "tokens_per_prompt": 100}
    return Comparison(**settings | changes)


def a_grid(*, rates=(0.1, 0.2), batches=((4, 1), (8, 2))):
    return Grid(rates=rates, batches=batches)


def test_every_method_gets_the_same_grid_and_as_many_seeds():
    comparison = a_comparison(seeds=3)
    grid = comparison.tuning()
    assert len(grid) == 2 * 2 * 2
    assert {spec.budget for spec in grid} == {400}
    tuned = [
        curve([0.2, 0.9 if spec.learning_rate == 0.2 else 0.3], method=spec.method) for spec in grid
    ]
    for one, spec in zip(tuned, grid, strict=True):
        one["spec"] |= {"learning_rate": spec.learning_rate, "prompts": spec.prompts}
        one["spec"]["tokens_per_prompt"] = spec.tokens_per_prompt
    finals = comparison.finals(tuned)
    assert [(s.seed, s.method) for s in finals] == [
        (seed, method) for seed in range(3) for method in ("grpo", "ppo")
    ]
    assert {spec.learning_rate for spec in finals} == {0.2}
    with pytest.raises(ConfigError, match="no tuning trial of ppo"):
        comparison.finals([one for one in tuned if one["spec"]["method"] == "grpo"])


def test_a_grid_may_say_how_many_tokens_a_prompt_gets():
    comparison = a_comparison(grid=a_grid(rates=(0.1,), batches=((1, 1), (1, 1, 40))))
    grid = comparison.tuning()
    assert [spec.tokens_per_prompt for spec in grid] == 2 * [100, 40]
    tuned = [
        curve([0.2, 0.9 if spec.tokens_per_prompt == 40 else 0.3], method=spec.method)
        | {"spec": asdict(spec)}
        for spec in grid
    ]
    assert {spec.tokens_per_prompt for spec in comparison.finals(tuned)} == {40}
    with pytest.raises(ConfigError, match="has not 2 or 3 numbers"):
        a_comparison(grid=a_grid(batches=((1,),)))


def test_a_grid_of_one_cell_needs_no_tuning():
    comparison = a_comparison(grid=a_grid(rates=(0.1,), batches=((4, 1),)))
    assert comparison.tuning() == []
    assert {spec.learning_rate for spec in comparison.finals([])} == {0.1}


def test_a_method_may_have_a_grid_of_its_own():
    one = Grid(rates=(0.5,), batches=((8, 8, 10),), beta2=0.999)
    comparison = a_comparison(grids={"ppo": one}, seeds=1)
    grid = comparison.tuning()
    assert {spec.method for spec in grid} == {"grpo"}
    tuned = [curve([0.2, 0.3]) | {"spec": asdict(spec)} for spec in grid]
    ours = comparison.finals(tuned)[1]
    assert (ours.method, ours.learning_rate, ours.tokens_per_prompt) == ("ppo", 0.5, 10)
    assert (ours.prompts, ours.minibatches, ours.beta2) == (8, 8, 0.999)
    assert ours.name != replace(ours, beta2=grid[0].beta2).name
    with pytest.raises(ConfigError, match="grid of rloo, which is no row"):
        a_comparison(grids={"rloo": one})
    with pytest.raises(ConfigError, match="no rate"):
        a_comparison(grids={"ppo": a_grid(rates=())})


def test_comparisons_of_one_task_keep_their_trials_apart():
    small, large = a_comparison(seeds=1), a_comparison(seeds=1, budget=5000)
    trials = [asdict(spec) for one in (small, large) for spec in one.tuning()]
    found = [curve([0.2, 0.3]) | {"spec": spec} for spec in trials]
    assert {c["spec"]["budget"] for c in small.own(found)} == {400}
    assert {c["spec"]["budget"] for c in large.own(found)} == {2000}
    assert len({spec.name for one in (small, large) for spec in one.tuning()}) == len(trials)
    slow = a_comparison(seeds=1, grid=replace(a_grid(), beta2=0.999))
    assert slow.own(found) == []
    assert small.own([curve([0.2, 0.3]) | {"spec": asdict(s)} for s in slow.tuning()]) == []


def test_what_was_registered_can_be_run():
    registration = read_registration()
    assert {name[0] for name in registration.comparisons} >= {"A", "B", "C"}
    names = [s.name for c in registration.comparisons.values() for s in c.tuning()]
    assert len(set(names)) == len(names)
    for comparison in registration.comparisons.values():
        assert comparison.tuning() or comparison.finals([])
        assert Path(comparison.model).name in {"", *registration.recipes}


@pytest.mark.parametrize("name", read_registration().recipes)
def test_every_recipe_is_one_that_warm_understands(name):
    (made,) = registered.models_of(
        [a_comparison(model=f"models/{name}")], read_registration(), Path("models")
    )
    assert made.module[0] == warm.__name__
    options = warm.parser().parse_args(made.module[1:])
    assert options.out.name == name
    assert FAMILIES[options.task].demonstrate is not None


def test_jobs_that_are_done_are_not_done_again_and_late_ones_are_stopped(tmp_path):
    def job(name, *module):
        return sweep.Job(name=name, made=tmp_path / f"{name}.zip", module=module)

    packs = [job(name, "zipfile", "-c", f"{tmp_path}/{name}.zip", __file__) for name in "ab"]
    assert sweep.run_jobs(packs) == 0
    before = packs[0].made.stat().st_mtime_ns
    fails = job("c", "zipfile", "-l", f"{tmp_path}/missing")
    assert sweep.run_jobs([*packs, fails], workers=1) == 1
    assert packs[0].made.stat().st_mtime_ns == before
    assert "missing" in fails.made.with_suffix(".log").read_text()
    sleeps = job("d", "timeit", "-n1", "-r1", "-s", "import time", "time.sleep(600)")
    assert sweep.run_jobs([sleeps], seconds=0.5) == 1


def test_a_stage_waits_for_the_one_before_it(tmp_path):
    registration = read_registration()
    compared = [a_comparison(task="tabular", budget=48, seeds=1, methods=("grpo", "rloo"))]
    run = {"out": tmp_path, "models": tmp_path, "workers": 2, "gpus": 0}
    assert registered.run_stages(compared, registration, "all", seconds=0.0, **run) == 8
    assert not (tmp_path / "final").exists()
    with pytest.raises(ConfigError, match="no tuning trial of grpo, rloo"):
        registered.run_stages(compared, registration, "final", seconds=0.0, **run)


@pytest.mark.full
def test_all_stages_end_in_a_report(tmp_path, monkeypatch, capsys):
    page = tmp_path / "small.toml"
    page.write_text(
        'date = "today"\n[comparison.small]\ntask = "tabular"\nmethods = ["grpo", "rloo"]\n'
        "rates = [0.1, 0.3]\nbatches = [[1, 1]]\nseeds = 1\nbudget = 96\n"
        "tokens_per_prompt = 48\nevaluations = 2\n"
    )
    command = ["registered", "sm", "--file", str(page), "--stage", "all", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    for _ in range(2):
        assert registered.main() == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[-1] == (tmp_path / "report.html").as_posix()
    assert shown[:-1] == ["models: 0 of 0 left", "tuning: 0 of 4 left", "final: 0 of 2 left"]


def test_a_trial_that_was_cut_short_is_shown_as_such(tmp_path):
    whole, begun, empty = curve([0.2, 0.4]), curve([0.2, 0.3], seed=1), curve([0.2], seed=2)
    (tmp_path / "x.s0.json").write_text(json.dumps(whole))
    (tmp_path / "x.s1.partial").write_text(json.dumps(begun))
    (tmp_path / "x.s2.partial").write_text(json.dumps(empty))
    assert report.read_curves(tmp_path) == [whole]
    found = report.read_curves(tmp_path, partial=True)
    assert found == [whole, {**begun, "cut": True}]
    report.write_report(found, tmp_path, facts={"date": "today"})
    assert json.loads((tmp_path / "report.json").read_text())["claims"] == {"chain-5": []}
    page = (tmp_path / "report.html").read_text()
    assert "2, 1 cut short" in page
    assert page.count("<svg") == 3
    assert "best peer" not in page


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("task", "method"),
    [
        *(("chain-5", name) for name in ("grpo", "focus", "vine-ppo", "spo-tree", "tree-grpo")),
        *(("chain-5", name) for name in ("ppo", "trace", "grpo-filter")),
        ("browse", "tree-rl"),
        ("gym-count_bits", "grpo"),
    ],
)
async def test_a_trial_draws_its_curve(task, method, tmp_path):
    spec = TrialSpec(
        task=task,
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
