"""Sessions of training: they learn, follow what arrives, and survive any death."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from focus.critic.loading import load_value_model
from focus.critic.snapshot import record_ids
from focus.critic.store import SnapshotStore
from focus.errors import ConfigError, StoreError
from focus.integrations.critic.ledger import CriticLedger
from focus.integrations.critic.trainer import SessionTrainer
from focus.training.judgement import read_judgement

from .samples import SETTINGS, prompt, trainer_in, true_value, write_fresh, write_round

torch.set_num_threads(1)

LEARNING = replace(
    SETTINGS, passes=8, patience=8, learning_rate=1e-2, checkpoint_steps=100, replay_rounds=0
)


def run(trainer: SessionTrainer, **limits: Any) -> list[str]:
    return [snapshot.version for snapshot in trainer.run(**limits)]


def applied(root: Path, session: int, pass_index: int) -> dict[str, int]:
    with closing(CriticLedger(root / "state" / "ledger.sqlite")) as ledger:
        return ledger.applied(session, pass_index)


def test_a_critic_of_known_values_is_learned_judged_and_steers(tmp_path: Path) -> None:
    write_round(tmp_path / "records", range(300))
    write_fresh(tmp_path / "fresh", range(1000, 1200))
    trainer = trainer_in(tmp_path, settings=LEARNING, fresh=(tmp_path / "fresh",))
    [snapshot] = trainer.run()
    assert snapshot.verdict.steering, snapshot.verdict.reason
    judgement = read_judgement(snapshot.facts.judgement or {}, where="here")
    truth = 0.5 - 1 / 3 - sum((true_value((n,)) - 0.5) ** 2 for n in range(1, 10)) / 9 + 0.25 / 3
    assert truth == pytest.approx(0.183, abs=0.01)
    assert judgement.gate.critic_brier < 0.21 < judgement.gate.constant_brier
    assert judgement.outcomes["policy_versions"] == ["actor-0"]
    model = load_value_model(trainer.store.load(snapshot.version))
    assert [p.value for p in snapshot.probes()] == pytest.approx(
        model.predict([p.context for p in snapshot.probes()]), abs=1e-5
    )
    assert snapshot.facts.metrics["held_out_error"] < 0.22
    assert trainer.store.verify() == ()


def test_each_session_takes_what_is_new_and_names_its_parent(tmp_path: Path) -> None:
    write_round(tmp_path / "records", range(20))
    assert run(trainer_in(tmp_path)) == ["critic-0001"]
    assert run(trainer_in(tmp_path)) == []
    write_round(tmp_path / "records", range(20, 30), round=1)
    write_round(tmp_path / "records", range(30, 35), round=2, accept=False)
    assert run(trainer_in(tmp_path)) == ["critic-0002"]
    store = SnapshotStore(tmp_path / "store")
    second = store.load("critic-0002")
    assert second.facts.parent == "critic-0001"
    assert second.facts.records.rounds == {"r": (0, 1)}
    assert second.facts.records.policy_versions == ("actor-0", "actor-1")
    assert set(second.record_ids()) == set(applied(tmp_path, 2, 0))
    for session, numbers in ((1, range(20)), (2, range(30))):
        rounds = [prompt(n, round=int(n >= 20)) for n in numbers]
        known = {name for group in rounds for name in record_ids(group)}
        for pass_index in range(2):
            assert set(applied(tmp_path, session, pass_index)) <= known


def test_replay_is_of_the_newest_rounds_only(tmp_path: Path) -> None:
    settings = replace(SETTINGS, replay_rounds=1, held_out=0.0)
    for round in range(3):
        write_round(tmp_path / "records", range(9 * round, 9 * round + 9), round=round)
        run(trainer_in(tmp_path, settings=settings))
    assert len(applied(tmp_path, 1, 0)) == 27
    assert len(applied(tmp_path, 3, 0)) == 27
    rounds = SnapshotStore(tmp_path / "store").manifest("critic-0003").facts.records.rounds
    assert rounds == {"r": (2, 2)}


def test_following_ends_after_the_wanted_sessions(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path)
    found = []
    write_round(tmp_path / "records", range(10))
    for snapshot in trainer.run(follow=True, sessions=2, poll_s=0.01):
        found.append(snapshot.version)
        write_round(tmp_path / "records", range(10, 20), round=1) if len(found) == 1 else None
    assert found == ["critic-0001", "critic-0002"]


def test_a_session_waits_for_enough_new_prompts(tmp_path: Path) -> None:
    write_round(tmp_path / "records", range(4))
    assert run(trainer_in(tmp_path), least_new=5) == []
    write_round(tmp_path / "records", range(4, 5), round=1)
    assert run(trainer_in(tmp_path), least_new=5) == ["critic-0001"]


def test_training_stops_early_and_publishes_the_best_pass(tmp_path: Path) -> None:
    write_round(tmp_path / "records", range(24))
    settings = replace(SETTINGS, passes=30, held_out=0.4, learning_rate=3e-2)
    [snapshot] = trainer_in(tmp_path, settings=settings).run()
    errors = snapshot.facts.metrics["held_out_by_pass"]
    best = min(range(len(errors)), key=lambda place: errors[place])
    assert len(errors) < 30
    assert snapshot.facts.metrics["best_pass"] == best + 1
    assert len(errors) == best + 1 + settings.patience


def test_other_settings_and_a_second_trainer_are_refused(tmp_path: Path) -> None:
    write_round(tmp_path / "records", range(10))
    running = trainer_in(tmp_path).run(follow=True)
    next(running)
    with pytest.raises(StoreError, match="another process"):
        run(trainer_in(tmp_path))
    running.close()
    with pytest.raises(ConfigError, match="begun with passes 2"):
        run(trainer_in(tmp_path, settings=replace(SETTINGS, passes=3)))


def test_what_was_trained_on_is_never_judged_on(tmp_path: Path) -> None:
    write_round(tmp_path / "records", range(20))
    write_fresh(tmp_path / "fresh", range(25))
    [snapshot] = trainer_in(tmp_path, fresh=(tmp_path / "fresh",)).run()
    judgement = snapshot.facts.judgement or {}
    assert judgement["outcomes"]["left_out"] == 60
    assert judgement["outcomes"]["problems"] == 5
    assert "at least 500 are needed" in snapshot.verdict.reason


def test_a_critic_that_fails_leaves_the_wheel_to_one_that_still_passes(tmp_path: Path) -> None:
    write_round(tmp_path / "records", range(300))
    write_fresh(tmp_path / "fresh", range(1000, 1200))
    good = trainer_in(tmp_path, settings=LEARNING, fresh=(tmp_path / "fresh",))
    assert run(good) == ["critic-0001"]
    other = trainer_in(
        tmp_path,
        settings=replace(SETTINGS, passes=1, learning_rate=1e-6),
        directory=type(good.directory)(tmp_path / "other state"),
        fresh=(tmp_path / "fresh",),
    )
    [second] = other.run()
    assert not second.verdict.steering
    current = good.store.current()
    assert current is not None
    assert current.version == "critic-0001"
    # Without outcomes there is no judgement, and the one that steers stays as well.
    write_round(tmp_path / "records", range(300, 310), round=1)
    assert run(trainer_in(tmp_path, settings=LEARNING)) == ["critic-0003"]
    assert good.store.current() == current


CHILD = """
import importlib, json, sys, types
from pathlib import Path
import torch
torch.set_num_threads(1)
package = types.ModuleType("here")
package.__path__ = [sys.argv[1]]
sys.modules["here"] = package
survive = importlib.import_module("here.deaths").survive
print(json.dumps(survive(Path(sys.argv[2]), every=int(sys.argv[3]))))
"""


def deaths(root: Path, *, every: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(root), str(every)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_deaths(found: dict[str, Any]) -> None:
    """Whenever it died, weights and books are those of a life without a death."""
    lives = found["lives"]
    assert len(lives) == found["deaths"] >= 3
    for life in lives:
        assert life == found["undisturbed"]


def test_kill_9_neither_repeats_nor_loses_a_record(tmp_path: Path) -> None:
    check_deaths(deaths(tmp_path, every=16))


@pytest.mark.full
def test_kill_9_at_every_event(tmp_path: Path) -> None:
    check_deaths(deaths(tmp_path, every=1))
