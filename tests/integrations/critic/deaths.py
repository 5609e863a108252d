"""A trainer that is killed at its n-th event, and what is left when it went on."""

from __future__ import annotations

import hashlib
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

from focus.critic.store import SnapshotStore
from focus.integrations.critic.ledger import CriticLedger
from focus.records.files import Files

from .samples import SETTINGS, small_model, trainer_in, write_round


class Deadly(Files):
    """Every file call of state and store, and every step that is told of, is an event."""

    def __init__(self, at: int) -> None:
        self.events = 0
        self._at = at

    def _event(self) -> None:
        if self.events == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.events += 1

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        self._event()

    def say(self, text: str) -> None:
        return None

    def create(self, path: Path) -> int:
        self._event()
        return super().create(path)

    def fsync(self, descriptor: int) -> None:
        return None

    def replace(self, source: Path, target: Path) -> None:
        self._event()
        super().replace(source, target)

    def sync_directory(self, path: Path) -> None:
        self._event()


def live(root: Path, *, at: int) -> int:
    """Train everything there is; returns the number of events."""
    deadly = Deadly(at)
    store = SnapshotStore(root / "store", files=deadly)
    for _ in trainer_in(root, files=deadly, report=deadly, store=store).run():
        continue
    return deadly.events


def in_a_child(root: Path, *, at: int) -> int:
    """The same in a process of its own; the number of the signal that ended it."""
    child = os.fork()
    if child == 0:
        live(root, at=at)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def left_by(root: Path) -> dict[str, Any]:
    """Everything that must not depend on deaths."""
    store = SnapshotStore(root / "store")
    with closing(CriticLedger(root / "state" / "ledger.sqlite")) as ledger:
        applied = {
            f"{session}/{pass_index}": sorted(ledger.applied(session, pass_index).items())
            for session in (1, 2)
            for pass_index in range(SETTINGS.passes)
        }
    weights = [
        hashlib.sha256((store.load(version).model / "model.safetensors").read_bytes()).hexdigest()
        for version in store.versions()
    ]
    return {
        "applied": hashlib.sha256(repr(applied).encode()).hexdigest(),
        "records": {name: len(pairs) for name, pairs in applied.items()},
        "weights": weights,
        "damage": [damage.reason for damage in store.verify()],
        "current": None if (current := store.current()) is None else current.version,
    }


def prepare(root: Path) -> None:
    small_model(root / "model")
    write_round(root / "records", range(24))


def two_sessions(root: Path, *, at: int) -> None:
    """Train round 0, dying once at event `at` if there is such a one; then round 1 arrives."""
    prepare(root)
    if in_a_child(root, at=at) == -signal.SIGKILL:
        assert in_a_child(root, at=-1) == 0
    write_round(root / "records", range(24, 40), round=1)
    assert in_a_child(root, at=-1) == 0


def survive(root: Path, *, every: int) -> dict[str, Any]:
    """Undisturbed, then once for every `every`-th event: die there and go on."""
    two_sessions(root / "undisturbed", at=-1)
    events = _count(root / "counted")
    lives = []
    for at in range(0, events, every):
        two_sessions(root / str(at), at=at)
        lives.append(left_by(root / str(at)))
    return {"undisturbed": left_by(root / "undisturbed"), "lives": lives, "deaths": len(lives)}


def _count(root: Path) -> int:
    """Events of a first session, counted in a child so that this process stays fresh."""
    prepare(root)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, str(live(root, at=-1)).encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    return int(os.read(reader, 20))
