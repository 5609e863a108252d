"""A round's critic is decided on a store in which nothing is half done."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest

from focus.critic.store import SnapshotStore
from focus.loop.deciding import Decider, Decision
from focus.loop.settings import LoopSettings
from focus.records import JsonlDirectory
from focus.records.files import Files

from .fakes import publish, write_round

pytestmark = pytest.mark.anyio


class Halting(Files):
    """Halts between giving a version its name and making it current."""

    def __init__(self) -> None:
        self.is_there = threading.Event()
        self.go_on = threading.Event()

    def replace(self, source: Path, target: Path) -> None:
        if target.name == "current.json":
            self.is_there.set()
            self.go_on.wait()
        super().replace(source, target)


async def test_a_version_that_is_being_made_current_is_the_one_that_counts(tmp_path: Path) -> None:
    records, store = tmp_path / "targets", SnapshotStore(tmp_path / "critics")
    for round in range(2):
        write_round(JsonlDirectory(records), round, "constant-0.5")
    publish(store, records, 0)
    path = tmp_path / "loop.toml"
    path.write_text(f'folder = "{tmp_path}"\nstaleness = 0\nserver.url = "http://127.0.0.1:9"\n')
    decider = Decider(LoopSettings.load(path))
    halting, decided = Halting(), list[Decision]()
    publisher = threading.Thread(
        target=publish, args=(SnapshotStore(store.path, files=halting), records, 1)
    )
    publisher.start()
    await anyio.to_thread.run_sync(halting.is_there.wait)

    async def decide() -> None:
        decided.append(await decider.decide(2, url=""))

    async with anyio.create_task_group() as group:
        group.start_soon(decide)
        for _ in range(1_000):  # time enough for whoever does not wait for the publisher
            await anyio.to_thread.run_sync(int)
        halting.go_on.set()
    publisher.join()
    (decision,) = decided
    assert decision.tag is not None
    assert decision.tag.snapshot == "critic-0002"
