"""The training loop against a learner made of plain values: a crash at its every call.

The learner's saved state lists the rounds it was trained on, so "applied exactly once" is
read from the model itself and compared with what the ledger says.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from focus import Critic, Problem
from focus.errors import CollectionFailed, ConfigError, StoreError
from focus.records import ActorRecord, CriticContext, CriticRecord, read_critic_records
from focus.records.jsonl import accepted_attempts
from focus.tasks.registry import Task
from focus.testing.envs import LiveEnv, walk_script
from focus.testing.policies import ScriptedPolicy
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


class Crash(Exception):
    """The process is gone from here on."""


class Fuse:
    """Counts the calls that the run makes, and crashes in the n-th."""

    def __init__(self, n: int = 0) -> None:
        self.n = n
        self.calls: list[str] = []

    def burn(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) == self.n:
            raise Crash(f"in call {self.n}, {name}")


class Listener:
    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        self._fuse.burn(name)

    def round(self, metrics: Mapping[str, Any]) -> None:
        self._fuse.burn("round applied")


class PlainLearner:
    """Its weights are the list of (round, attempt) it was trained on."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse
        self.history: list[list[int]] = []
        self.policy = ScriptedPolicy(walk_script(7), version="actor-0000")

    @property
    def optimizer_steps(self) -> int:
        self._fuse.burn("optimizer_steps")
        return len(self.history)

    def critic(self) -> Critic:
        async def by_height(contexts: Sequence[CriticContext]) -> list[float]:
            return [0.5 + 0.02 * (c.text.count("+") - c.text.count("-")) for c in contexts]

        return Critic.function(by_height, version=f"critic-{len(self.history)}")

    def update_actor(self, records: Sequence[ActorRecord], *, seed: int) -> Mapping[str, float]:
        self._fuse.burn("update_actor")
        assert {record.source.policy_version for record in records} == {self.policy.version}
        (identity,) = {record.source.identity for record in records}
        self.history.append([identity.round, identity.attempt])
        return {"actor_loss": 0.0}

    def update_critic(self, records: Sequence[CriticRecord], *, seed: int) -> Mapping[str, float]:
        self._fuse.burn("update_critic")
        rounds = sorted({record.source.identity.round for record in records})
        due = len(self.history)
        assert rounds == list(range(max(0, due + 1 - SETTINGS.replay_rounds), due + 1))
        return {"critic_loss": 0.0}

    def publish(self, round_index: int) -> None:
        self._fuse.burn("publish")
        self.policy.version = f"actor-{round_index + 1:04d}"

    def save(self, folder: Path) -> None:
        (folder / "half").touch()
        self._fuse.burn("save")
        state = {"history": self.history, "version": self.policy.version}
        (folder / "learner.json").write_text(json.dumps(state))

    def load(self, folder: Path) -> None:
        self._fuse.burn("load")
        state = json.loads((folder / "learner.json").read_text())
        self.history, self.policy.version = state["history"], state["version"]

    def export(self, folder: Path) -> None:
        self._fuse.burn("export")
        (folder / "history.json").write_text(json.dumps(self.history))


class Walks:
    """Walk problems, and every environment that was handed out."""

    def __init__(self) -> None:
        self.envs: list[LiveEnv] = []
        self.task = Task(
            name="walk",
            segment_tokens=3,
            allowance_tokens=7,
            draw=lambda split, count, seed: tuple(
                Problem(id=f"{split}-{seed}-{n}", prompt=f"Walk {split} {seed} {n}.")
                for n in range(count)
            ),
            make_env=self._env,
        )

    def _env(self, problem: Problem) -> LiveEnv:
        self.envs.append(LiveEnv())
        return self.envs[-1]


def run_once(
    root: Path, fuse: Fuse, *, settings: TrainSettings = SETTINGS
) -> tuple[dict[str, Any], PlainLearner]:
    """One life of the process; whatever ends it, no environment state stays open."""
    walks, learner = Walks(), PlainLearner(fuse)
    resumes = (root / "ledger.sqlite").exists()
    run = TrainingRun(
        settings=settings,
        task=walks.task,
        learner=learner,
        directory=RunDirectory.reopen(root) if resumes else RunDirectory.create(root),
        report=Listener(fuse),
    )
    try:
        return asyncio.run(run.run()), learner
    finally:
        assert all(env.opened == env.released for env in walks.envs)


def check_finished(root: Path, learner: PlainLearner, rounds: int = SETTINGS.rounds) -> None:
    with closing(RunLedger(root / "ledger.sqlite")) as ledger:
        done, attempts = ledger.applied(), ledger.attempts()
    accepted = [[entry.round, entry.attempt] for entry in done]
    assert [entry.round for entry in done] == list(range(rounds))
    assert learner.history == accepted, "trained on what the ledger says, once each"
    assert json.loads((root / "models/final/history.json").read_text()) == accepted
    assert {state for _, _, state in attempts} <= {"applied", "abandoned"}
    lines = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    assert [[line["round"], line["attempt"]] for line in lines] == accepted
    assert accepted_attempts(root / "critic") == dict(accepted)
    found = {
        (record.source.identity.round, record.source.identity.attempt)
        for record in read_critic_records(root / "critic")
    }
    assert found == {(r, a) for r, a in accepted}
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
            super().__init__(fuse)
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
