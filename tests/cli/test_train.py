"""`focus train` and `focus eval` from end to end, on the built-in model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from focus.models import BUILTIN
from focus.training.settings import TrainSettings, settings_from

from .conftest import TINY, Invoke


def test_a_run_leaves_what_its_readme_names(trained: Path) -> None:
    for line in (trained / "README.txt").read_text().splitlines()[2:]:
        assert (trained / line.split()[0]).exists(), line


def test_the_resolved_settings_are_kept(trained: Path) -> None:
    settings = settings_from(json.loads((trained / "config.json").read_text()))
    assert (settings.rounds, settings.prompts, settings.gate.checkpoints) == (1, 2, 8)
    assert settings.actor.learning_rate == TrainSettings().actor.learning_rate


def test_resuming_a_finished_run_prints_its_result_again(
    trained: Path, tmp_path: Path, invoke: Invoke
) -> None:
    root = tmp_path / trained.name
    shutil.copytree(trained, root)
    before = (root / "metrics.jsonl").read_bytes()
    result = invoke("train", "--resume", root)
    assert "accuracy" in result.stdout
    assert f"focus show {root}" in result.stdout
    assert (root / "metrics.jsonl").read_bytes() == before


def test_resuming_with_more_rounds_adds_them(trained: Path, tmp_path: Path, invoke: Invoke) -> None:
    root = tmp_path / trained.name
    shutil.copytree(trained, root)
    invoke("train", "--resume", "--out", root, "--rounds", 2)
    lines = (root / "metrics.jsonl").read_text().splitlines()
    rounds = [json.loads(line)["round"] for line in lines]
    assert rounds == [0, 1]
    assert json.loads((root / "summary.json").read_text())["rounds"] == 2


def test_a_file_of_settings_stands_between_preset_and_options(
    tmp_path: Path, invoke: Invoke
) -> None:
    config = tmp_path / "run.toml"
    config.write_text("rounds = 1\nprompts = 5\n[critic]\nsteps = 1\n")
    changes = [part for change in TINY for part in ("--set", change)]
    changes += ["--packing", "tree"]
    root = tmp_path / "run"
    invoke("train", "--preset", "smoke", "--config", config, "--out", root, *changes)
    settings = settings_from(json.loads((root / "config.json").read_text()))
    assert (settings.rounds, settings.prompts, settings.critic.steps) == (1, 2, 1)
    assert settings.packing == "tree"
    (metrics,) = map(json.loads, (root / "metrics.jsonl").read_text().splitlines())
    assert metrics["tokens_learner"] == metrics["tokens_distinct"]
    assert 0.95 <= metrics["eta_learn"] <= 1.0


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--out", "{trained}"], "holds a run already; continue it with --resume"),
        (["--resume", "{tmp}"], "holds no run to resume"),
        (["--out", "{tmp}/file"], "is a file"),
        (["--out", "{tmp}"], "is not empty and no run of FOCUS"),
        (["--out", "{tmp}/new", "--model", "nowhere"], "no config.json in 'nowhere'"),
        (["--out", "{tmp}/new", "--model", "{untemplated}"], "has no chat template"),
        (["--out", "{tmp}/new", "--task", "nothing"], "unknown task 'nothing'"),
        (["--out", "{tmp}/new", "--set", "round=3"], "unknown setting 'round'"),
        (["--out", "{tmp}/new", "--set", "tokens_per_prompt=0"], "tokens_per_prompt must be > 0"),
        (["--out", "{tmp}/new", "--config", "{tmp}/no.toml"], "no.toml"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    arguments: list[str],
    remedy: str,
    trained: Path,
    tmp_path: Path,
    untemplated: Path,
    invoke: Invoke,
) -> None:
    (tmp_path / "file").write_text("")
    filled = [
        argument.format(trained=trained, tmp=tmp_path, untemplated=untemplated)
        for argument in arguments
    ]
    result = invoke("train", *filled, code=1)
    assert result.stderr.startswith("error: ")
    assert remedy in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "--out", "b"],
        ["--resume", "a", "--seed", "3"],
        ["--resume", "a", "--set", "seed=3"],
        ["--preset", "huge", "--out", "a"],
        ["--rounds", "0", "--out", "a"],
    ],
)
def test_wrong_usage_has_code_2(arguments: list[str], invoke: Invoke) -> None:
    invoke("train", *arguments, code=2)


def test_a_trained_policy_is_evaluated_as_a_model_folder(
    trained: Path, tmp_path: Path, invoke: Invoke
) -> None:
    target = tmp_path / "deep" / "after.json"
    model = trained / "models" / "final"
    result = invoke("eval", "--model", model, "-n", 6, "--seed", 1, "--json", target)
    found = json.loads(target.read_text())
    assert {"accuracy", "ci95", "n"} <= set(found)
    assert (found["n"], found["model"], found["seed"]) == (6, str(model), 1)
    low, high = found["ci95"]
    assert low <= found["accuracy"] <= high
    assert found["policy_version"].startswith("final@")
    assert result.stdout.startswith(f"accuracy {found['accuracy']:.3f}, 95 % interval [")


def test_equal_seeds_give_equal_results(invoke: Invoke) -> None:
    first, again = (
        json.loads(invoke("eval", "--model", BUILTIN, "-n", 5, "--json", "-").stdout)
        for _ in range(2)
    )
    assert first == again


def test_greedy_evaluation_is_allowed(invoke: Invoke) -> None:
    result = invoke("eval", "-n", 3, "--temperature", 0, "--json", "-")
    assert json.loads(result.stdout)["temperature"] == 0


@pytest.mark.parametrize("arguments", [["-n", "0"], ["--temperature", "-1"], ["--split", "all"]])
def test_an_evaluation_that_means_nothing_has_code_2(arguments: list[str], invoke: Invoke) -> None:
    invoke("eval", *arguments, code=2)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [(["--model", "nowhere"], "no config.json"), (["--task", "nothing"], "unknown task")],
)
def test_an_evaluation_without_model_or_task_says_so(
    arguments: list[str], remedy: str, invoke: Invoke
) -> None:
    assert remedy in invoke("eval", "-n", 2, *arguments, code=1).stderr
