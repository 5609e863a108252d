"""A store of critics: a version is there whole or not at all, and damage has a name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from focus.critic.snapshot import Probe, RecordsUsed, SnapshotFacts, Verdict, record_ids
from focus.critic.store import SnapshotStore
from focus.errors import ConfigError, SchemaError, StoreError
from focus.records.files import Files
from focus.records.records import CriticContext

PROBES = [Probe(CriticContext(renderer="token_chunk/1", text="1+1", ids=(1, 2)), 0.25)]


def fill(folder: Path, value: float = 0.0) -> None:
    save_file({"weight": np.full(8, value, np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")


def facts(origin: str = "by hand", **changes: object) -> SnapshotFacts:
    given = {"renderer": "token_chunk/1", "verdict": Verdict(False, "a test")} | changes
    return SnapshotFacts(origin=origin, **given)  # type: ignore[arg-type]


class Unsynced(Files):
    """Does not wait for the disk."""

    def fsync(self, descriptor: int) -> None:
        return None

    def sync_directory(self, path: Path) -> None:
        return None


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "made" / "later", files=Unsynced())


@pytest.fixture
def two(store: SnapshotStore) -> SnapshotStore:
    store.publish(lambda folder: fill(folder, 1.0), facts("first"), probes=PROBES)
    store.publish(lambda folder: fill(folder, 2.0), facts("second", parent="critic-0001"))
    return store


def test_nothing_is_there_before_the_first_publication(store: SnapshotStore) -> None:
    assert store.current() is None
    assert store.versions() == ()
    assert store.verify() == ()
    assert not store.path.exists()


def test_a_version_comes_back_as_it_was_published(two: SnapshotStore) -> None:
    assert two.versions() == ("critic-0001", "critic-0002")
    current = two.current()
    assert current is not None
    assert (current.version, current.facts.parent) == ("critic-0002", "critic-0001")
    first = two.load("critic-0001")
    assert load_file(first.model / "model.safetensors")["weight"].tolist() == [1.0] * 8
    assert first.probes() == tuple(PROBES)
    assert first.facts == facts("first")
    assert two.verify() == ()


def test_the_pointer_goes_back_when_told(two: SnapshotStore) -> None:
    two.point("critic-0001")
    assert two.current() == two.load("critic-0001")
    with pytest.raises(StoreError, match="critic-0009"):
        two.point("critic-0009")


def test_a_version_need_not_become_current(two: SnapshotStore) -> None:
    third = two.publish(fill, facts("third"), make_current=False)
    assert third.version == "critic-0003"
    assert two.current() == two.load("critic-0002")


def test_old_versions_retire_and_numbers_are_not_given_again(two: SnapshotStore) -> None:
    two.point("critic-0001")
    for number in range(3, 7):
        two.publish(fill, facts(f"number {number}"), make_current=False)
    assert two.retire(keep=2) == ("critic-0002", "critic-0003", "critic-0004")
    assert two.versions() == ("critic-0001", "critic-0005", "critic-0006")
    assert two.verify() == ()
    assert _leftovers(two) == []
    assert two.publish(fill, facts("next")).version == "critic-0007"
    assert two.retire(keep=9) == ()
    with pytest.raises(StoreError, match="critic-0002"):
        two.load("critic-0002")
    with pytest.raises(ConfigError, match="at least 1"):
        two.retire(keep=0)


def test_an_origin_is_published_once(two: SnapshotStore) -> None:
    again = two.publish(lambda folder: fill(folder, 9.0), facts("first"))
    assert again == two.load("critic-0001")
    assert len(two.versions()) == 2
    assert two.current() == again


def test_record_ids_are_kept_and_checked(store: SnapshotStore) -> None:
    with pytest.raises(ConfigError, match="record_ids"):
        store.publish(fill, facts(), record_ids=["a#0"])
    assert RecordsUsed().digest == RecordsUsed.of([]).digest
    assert record_ids([]) == []


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a cut file": lambda folder: os.truncate(folder / "model" / "model.safetensors", 40),
    "other bytes": lambda folder: _flip(folder / "model" / "model.safetensors"),
    "a missing shard": lambda folder: (folder / "model" / "model.safetensors").unlink(),
    "a foreign file": lambda folder: (folder / "model" / "evil.py").write_text("1/0"),
    "a link out": lambda folder: os.symlink("/etc/hostname", folder / "model" / "x.json"),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a cut manifest": lambda folder: os.truncate(folder / "manifest.json", 30),
    "another's manifest": lambda folder: shutil.copy(
        folder.parent / "critic-0001" / "manifest.json", folder
    ),
    "an unknown field": lambda folder: _edit(folder / "manifest.json", {"more": 1}),
    "another schema": lambda folder: _edit(folder / "manifest.json", {"schema": "x/2"}),
}


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _edit(path: Path, changes: dict[str, object]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told_and_the_others_still_load(two: SnapshotStore, damage: str) -> None:
    folder = two.path / "snapshots" / "critic-0002"
    DAMAGES[damage](folder)
    with pytest.raises(StoreError) as error:
        two.load("critic-0002")
    assert str(folder) in str(error.value)
    assert {found.version for found in two.verify()} - {None} == {"critic-0002"}
    assert two.load("critic-0001").version == "critic-0001"


def test_a_changed_verdict_of_the_current_version_is_found_out(two: SnapshotStore) -> None:
    path = two.path / "snapshots" / "critic-0002" / "manifest.json"
    _edit(path, {"verdict": {"steering": True, "reason": "trust me"}})
    with pytest.raises(SchemaError, match="another manifest"):
        two.current()


@pytest.mark.parametrize(
    "pointer",
    [
        b"",
        b"{}",
        b'{"schema":"focus.current/1","version":"critic-0009","manifest_sha256":""}',
        b'{"schema":"focus.current/1","version":"../critic-0001","manifest_sha256":""}',
    ],
)
def test_a_pointer_to_nothing_is_an_error(two: SnapshotStore, pointer: bytes) -> None:
    (two.path / "current.json").write_bytes(pointer)
    with pytest.raises(StoreError, match=r"current\.json"):
        two.current()
    assert [found.version for found in two.verify()] == [None]


def test_a_foreign_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    store = SnapshotStore(tmp_path)
    for use in (store.current, store.versions, lambda: store.publish(fill, facts())):
        with pytest.raises(StoreError, match=r"thesis\.tex"):
            use()
    assert os.listdir(tmp_path) == ["thesis.tex"]
    with pytest.raises(StoreError, match="a directory is needed"):
        SnapshotStore(tmp_path / "thesis.tex").versions()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "modeling.py", "state.pkl", "run.so"])
def test_what_could_run_is_not_published(store: SnapshotStore, name: str) -> None:
    def fill_with_code(folder: Path) -> None:
        fill(folder)
        (folder / name).write_bytes(b"x")

    with pytest.raises(SchemaError, match=name.replace(".", r"\.")):
        store.publish(fill_with_code, facts())
    assert store.versions() == ()


def test_a_missing_parent_and_an_empty_model_are_refused(two: SnapshotStore) -> None:
    with pytest.raises(StoreError, match="critic-0077"):
        two.publish(fill, facts("third", parent="critic-0077"))
    with pytest.raises(StoreError, match="safetensors"):
        two.publish(lambda folder: None, facts("third"))
    assert len(two.versions()) == 2
    assert _leftovers(two) == []


def _leftovers(store: SnapshotStore) -> list[str]:
    return [name for name in os.listdir(store.path / "snapshots") if "incoming" in name]


def test_publishers_at_once_get_a_version_each(store: SnapshotStore) -> None:
    barrier = threading.Barrier(8)

    def publish(number: int) -> None:
        barrier.wait()
        store.publish(lambda folder: fill(folder, number), facts(f"worker {number}"))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.versions() == tuple(f"critic-{number:04d}" for number in range(1, 9))
    assert {store.load(v).facts.origin for v in store.versions()} == {
        f"worker {number}" for number in range(8)
    }
    assert store.current() == store.load("critic-0008")
    assert _leftovers(store) == []


class Dying(Unsynced):
    """Counts calls that change the disk; at number `at`, `die` is called instead."""

    def __init__(self, at: int, die: Callable[[], None]) -> None:
        self.calls = 0
        self._at, self._die = at, die

    def _count(self) -> None:
        if self.calls == self._at:
            self._die()
        self.calls += 1

    def create(self, path: Path) -> int:
        self._count()
        return super().create(path)

    def fsync(self, descriptor: int) -> None:
        self._count()
        super().fsync(descriptor)

    def link(self, source: Path, target: Path) -> None:
        self._count()
        super().link(source, target)

    def replace(self, source: Path, target: Path) -> None:
        self._count()
        super().replace(source, target)

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)


def _full() -> None:
    raise OSError(28, "No space left on device")


def _calls_of_a_publication(path: Path) -> int:
    SnapshotStore(path, files=Unsynced()).publish(fill, facts("first"))
    files = Dying(-1, _full)
    SnapshotStore(path, files=files).publish(fill, facts("second"))
    return files.calls


def test_whichever_call_fails_the_old_state_stays_readable(tmp_path: Path) -> None:
    calls = _calls_of_a_publication(tmp_path / "counted")
    assert calls > 12
    for n in range(calls):
        path = tmp_path / str(n)
        SnapshotStore(path, files=Unsynced()).publish(fill, facts("first"))
        with pytest.raises(StoreError, match="No space left"):
            SnapshotStore(path, files=Dying(n, _full)).publish(fill, facts("second"))
        store = SnapshotStore(path, files=Unsynced())
        assert store.verify() == ()
        current = store.current()
        assert current is not None
        assert current.version in store.versions()
        assert _leftovers(store) == []
        assert store.publish(fill, facts("second")).version == "critic-0002"
        assert store.current() == store.load("critic-0002")


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_store import Dying, facts, fill
from focus.critic.store import SnapshotStore

die = lambda: os.kill(os.getpid(), signal.SIGKILL)
for n in range(int(sys.argv[3])):
    if os.fork() == 0:
        store = SnapshotStore(Path(sys.argv[2]) / str(n), files=Dying(n, die))
        store.publish(fill, facts("second"))
    assert os.WTERMSIG(os.wait()[1]) == signal.SIGKILL
"""


def test_kill_9_at_any_call_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    calls = _calls_of_a_publication(tmp_path / "counted")
    for n in range(calls):
        SnapshotStore(tmp_path / str(n), files=Unsynced()).publish(fill, facts("first"))
    here = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", KILLED, here, str(tmp_path), str(calls)], check=True)
    for n in range(calls):
        store = SnapshotStore(tmp_path / str(n), files=Unsynced())
        assert store.verify() == ()
        current = store.current()
        assert current is not None
        assert current.version in store.versions()
        # The next publisher repeats the work, gets the same version, and sweeps.
        assert store.publish(fill, facts("second")).version == "critic-0002"
        assert store.versions() == ("critic-0001", "critic-0002")
        assert store.current() == store.load("critic-0002")
        assert _leftovers(store) == []
