"""The training loop against a learner made of plain values: a crash at its every call."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from focus.errors import CollectionFailed, ConfigError, StoreError
from focus.promises.lives import Crash, Fuse, Listener, PlainLearner, Walks, disagreements, live
from focus.training.ledger import RunLedger
from focus.training.run import TrainingRun
from focus.training.rundir import RunDirectory
from focus.training.settings import GateSettings, TrainSettings

SETTINGS = TrainSettings(
    rounds=3,
    prompts=2,
    tokens_per_prompt=30,
    pilot_problems=2,
    eval_problems=2,
    keep_trees=1,
    gate=GateSettings(checkpoints=4, every=2),
)


def run_once(
    root: Path, fuse: Fuse, *, settings: TrainSettings = SETTINGS
) -> tuple[dict[str, Any], PlainLearner]:
    return live(root, fuse, settings=settings)


def check_finished(root: Path, learner: PlainLearner, rounds: int = SETTINGS.rounds) -> None:
    assert disagreements(root, rounds=rounds) == []
    with closing(RunLedger(root / "ledger.sqlite")) as ledger:
        accepted = [[entry.round, entry.attempt] for entry in ledger.applied()]
    assert learner.history == accepted, "trained on what the ledger says, once each"
    assert json.loads((root / "summary.json").read_text())["rounds"] == rounds


def test_an_undisturbed_run(tmp_path: Path) -> None:
    summary, learner = run_once(tmp_path / "run", Fuse())
    check_finished(tmp_path / "run", learner)
    assert summary["optimizer_steps"] == 3
    assert learner.history == [[0, 0], [1, 0], [2, 0]]
    trees = sorted(path.name for path in (tmp_path / "run/trees").iterdir())
    assert trees == ["round-0000", "round-0001", "round-0002"]


def test_a_crash_in_any_call_is_resumed_and_no_round_is_skipped_or_repeated(
    tmp_path: Path, full: bool
) -> None:
    calls = Fuse()
    run_once(tmp_path / "undisturbed", calls)
    for n in range(1, len(calls.calls) + 1, 1 if full else 3):
        root = tmp_path / str(n)
        with pytest.raises(Crash, match=f"in call {n},"):
            run_once(root, Fuse(n))
        _, learner = run_once(root, Fuse())
        check_finished(root, learner)
    assert {"save", "load", "publish"} - {*calls.calls} == {"load"}


def test_a_run_that_crashes_again_and_again_still_gets_there(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for life in range(1, 200):
        try:
            _, learner = run_once(root, Fuse(n=12 + life % 5))
        except Crash:
            continue
        break
    check_finished(root, learner)
    assert life > 4


def test_a_finished_run_can_be_given_more_rounds_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "run"
    run_once(root, Fuse())
    longer = dataclasses.replace(SETTINGS, rounds=4)
    _, learner = run_once(root, Fuse(), settings=longer)
    check_finished(root, learner, rounds=4)
    assert json.loads((root / "config.json").read_text())["rounds"] == 4
    with closing(RunLedger(root / "ledger.sqlite")) as ledger:
        assert ledger.fact("settings")["rounds"] == 4
    with pytest.raises(ConfigError, match="other settings"):
        run_once(root, Fuse(), settings=dataclasses.replace(longer, seed=1))


def test_what_is_drawn_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    def trees(name: str) -> dict[str, bytes]:
        run_once(tmp_path / name, Fuse(), settings=dataclasses.replace(SETTINGS, rounds=1))
        folder = tmp_path / name / "trees"
        return {path.name: path.read_bytes() for path in folder.rglob("*.json")}

    assert trees("one") == trees("another") != {}


def test_a_failed_collection_ends_the_round_as_itself(tmp_path: Path) -> None:
    class Broken(PlainLearner):
        def __init__(self, fuse: Fuse) -> None:
            super().__init__(fuse, replay_rounds=SETTINGS.replay_rounds)
            self.policy.vocab_size = 3

    walks = Walks()
    run = TrainingRun(
        settings=dataclasses.replace(SETTINGS, pilot_problems=1, eval_problems=1),
        task=walks.task,
        learner=Broken(Fuse()),
        directory=RunDirectory.create(tmp_path / "run"),
        report=Listener(Fuse()),
    )
    with pytest.raises((CollectionFailed, RuntimeError), match="vocabulary of 3") as caught:
        asyncio.run(run.run())
    assert not isinstance(caught.value, ExceptionGroup)
    assert all(env.opened == env.released for env in walks.envs)


@pytest.mark.parametrize("damaged", ["{", "{}", '{"steering": []}', '{"steering": {"window": 3}}'])
def test_a_damaged_checkpoint_is_an_error_and_not_a_fresh_start(
    damaged: str, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    run_once(root, Fuse(), settings=dataclasses.replace(SETTINGS, rounds=1))
    with closing(RunLedger(root / "ledger.sqlite")) as ledger:
        last = ledger.applied()[-1]
    (root / "checkpoints" / last.checkpoint / "state.json").write_text(damaged)
    with pytest.raises(StoreError, match=r"state\.json"):
        run_once(root, Fuse())
