"""SIGKILL at every file call of a run's first milliseconds: the folder stays of use."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from focus.errors import StoreError
from focus.promises.kills import in_fork
from focus.promises.lives import Crash, Fuse, disagreements, live, tiny
from focus.training.collection_folder import CollectionFolder
from focus.training.rundir import RunDirectory

SETTINGS = tiny(rounds=1)


def die_at(n: int, root: Path) -> None:
    """Kill this process just before its n-th call that names a file of `root`."""
    left = n

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event.startswith(("open", "os.", "sqlite3.connect")) and str(root) in map_text(
            arguments
        ):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def map_text(arguments: tuple[Any, ...]) -> str:
    return " ".join(os.fsdecode(a) for a in arguments if isinstance(a, str | bytes | os.PathLike))


def killed_at_each_call(root: Path, work: Callable[[Path], None]) -> list[Path]:
    """The folders that are left when `work` is killed before its first, second, … call."""
    folders: list[Path] = []
    while True:
        folder = root / str(len(folders)) / "run"
        folder.parent.mkdir(parents=True)
        n = len(folders)

        def die_there(folder: Path = folder, n: int = n) -> None:
            die_at(n, folder)
            work(folder)

        if in_fork(die_there) != -signal.SIGKILL:
            return folders
        folders.append(folder)


def begin(root: Path) -> None:
    """Until the first model would be written: settings are noted by then."""
    try:
        live(root, Fuse(1), settings=SETTINGS)
    except Crash:
        return


def opened(root: Path) -> str:
    """How a user can go on: "fresh", "resume", or neither or both."""
    ways = []
    for way, attempt in (("resume", RunDirectory.reopen), ("fresh", RunDirectory.create)):
        try:
            attempt(root)
        except StoreError:
            continue
        ways.append(way)
    return " and ".join(ways)


def test_a_run_killed_at_its_beginning_can_be_started_or_resumed(tmp_path: Path) -> None:
    folders = killed_at_each_call(tmp_path, begin)
    assert len(folders) > 12
    ways = [opened(folder) for folder in folders]
    assert set(ways) == {"fresh", "resume"}
    assert ways == sorted(ways), "once it can be resumed it always can"
    for folder in folders:
        live(folder, Fuse(), settings=SETTINGS)
        assert disagreements(folder, rounds=1) == []


def test_a_collection_killed_at_its_beginning_can_be_started_again(tmp_path: Path) -> None:
    def open_folder(root: Path) -> None:
        CollectionFolder.open(root, {"seed": 1}, versions={})

    for folder in killed_at_each_call(tmp_path, open_folder):
        open_folder(folder)
        assert (folder / "collect.json").is_file()


@pytest.mark.parametrize("name", ["notes.txt", "rows/mine.json"])
def test_files_of_others_are_no_beginning(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(StoreError, match="is not empty"):
        CollectionFolder.open(tmp_path, {"seed": 1}, versions={})
