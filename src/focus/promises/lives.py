"""Lives of one training run: a learner of plain values, and a crash at any of its calls.

The learner's saved state lists the rounds it was trained on, so "applied exactly once" is
read from the model itself and compared with what the ledger says.
"""

from __future__ import annotations

import json
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

from focus import Critic, Problem
from focus.errors import FocusError, StoreError
from focus.records import CriticContext, CriticRecord, PolicyRecord, read_critic_records
from focus.records.jsonl import accepted_attempts
from focus.tasks.registry import Task
from focus.testing.envs import LiveEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.training.ledger import RunLedger
from focus.training.run import TrainingRun
from focus.training.rundir import RunDirectory
from focus.training.settings import GateSettings, TrainSettings

__all__ = ("Crash", "Fuse", "Listener", "PlainLearner", "Walks", "disagreements", "live", "tiny")


class Crash(Exception):
    """The process is gone from here on."""


class Fuse:
    """Counts the calls that a run makes, and crashes in the n-th.

    Args:
        n: 0 never crashes.
        only: the calls that count, by the last word of their names; None counts all.
    """

    def __init__(self, n: int = 0, *, only: Names[str] | None = None) -> None:
        self._n = n
        self._only = only
        self.calls: list[str] = []

    def burn(self, name: str) -> None:
        if self._only is not None and name.split()[-1] not in self._only:
            return
        self.calls.append(name)
        if len(self.calls) == self._n:
            raise Crash(f"in call {self._n}, {name}")


class Listener:
    """A reporter whose calls count too."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        self._fuse.burn(name)

    def round(self, metrics: Mapping[str, Any]) -> None:
        self._fuse.burn("round applied")


class PlainLearner:
    """Its weights are the list of (round, attempt) it was trained on."""

    def __init__(self, fuse: Fuse, *, replay_rounds: int) -> None:
        self._fuse = fuse
        self._replay_rounds = replay_rounds
        self.history: list[list[int]] = []
        self.policy = ScriptedPolicy(walk_script(7), version="actor-0000")

    @property
    def optimizer_steps(self) -> int:
        """The run reads it between the checkpoint and the ledger's transaction."""
        self._fuse.burn("optimizer_steps")
        return len(self.history)

    def critic(self) -> Critic:
        async def by_height(contexts: Sequence[CriticContext]) -> list[float]:
            return [0.5 + 0.02 * (c.text.count("+") - c.text.count("-")) for c in contexts]

        return Critic.function(by_height, version=f"critic-{len(self.history)}")

    def update_actor(self, records: Sequence[PolicyRecord], *, seed: int) -> Mapping[str, float]:
        self._fuse.burn("update_actor")
        assert {record.source.policy_version for record in records} == {self.policy.version}
        (identity,) = {record.source.identity for record in records}
        self.history.append([identity.round, identity.attempt])
        return {"actor_loss": 0.0}

    def update_critic(self, records: Sequence[CriticRecord], *, seed: int) -> Mapping[str, float]:
        self._fuse.burn("update_critic")
        rounds = sorted({record.source.identity.round for record in records})
        due = len(self.history)
        assert rounds == list(range(max(0, due + 1 - self._replay_rounds), due + 1))
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


def tiny(rounds: int) -> TrainSettings:
    """Settings under which a round takes milliseconds."""
    return TrainSettings(
        rounds=rounds,
        prompts=1,
        tokens_per_prompt=16,
        pilot_problems=1,
        eval_problems=1,
        keep_trees=0,
        gate=GateSettings(checkpoints=1, every=99),
    )


def live(root: Path, fuse: Fuse, *, settings: TrainSettings) -> tuple[dict[str, Any], PlainLearner]:
    """One life of the process; whatever ends it, no environment state stays open.

    Raises:
        Crash: the fuse burnt down.
    """
    walks = Walks()
    learner = PlainLearner(fuse, replay_rounds=settings.replay_rounds)
    run = TrainingRun(
        settings=settings,
        task=walks.task,
        learner=learner,
        directory=_directory(root),
        report=Listener(fuse),
    )
    try:
        return anyio.run(run.run), learner
    finally:
        assert all(env.opened == env.released for env in walks.envs)


def _directory(root: Path) -> RunDirectory:
    try:
        return RunDirectory.reopen(root)
    except StoreError:
        return RunDirectory.create(root)


def disagreements(root: Path, *, rounds: int) -> list[str]:
    """What model, ledger, sink and metrics of a finished run say otherwise than the others."""
    with closing(RunLedger(root / "ledger.sqlite")) as ledger:
        done, attempts = ledger.applied(), ledger.attempts()
    accepted = [[entry.round, entry.attempt] for entry in done]
    lines = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    facts = {
        "rounds of the ledger": [entry.round for entry in done] == list(range(rounds)),
        "states of attempts": {state for _, _, state in attempts} <= {"applied", "abandoned"},
        "model": json.loads((root / "models/final/history.json").read_text()) == accepted,
        "metrics": [[line["round"], line["attempt"]] for line in lines] == accepted,
        "marks": accepted_attempts(root / "critic") == {r: a for r, a in accepted},
        "records": _recorded(root) == {(r, a) for r, a in accepted},
    }
    return [name for name, is_right in facts.items() if not is_right]


def _recorded(root: Path) -> set[tuple[int, int]] | None:
    try:
        identities = [r.source.identity for r in read_critic_records(root / "critic")]
    except FocusError:
        return None
    return {(identity.round, identity.attempt) for identity in identities}
