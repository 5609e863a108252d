"""Folders as states: what is copied, refused, stored and removed."""

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.agent.episodes import DirectoryEnv, Transition
from focus.agent.episodes.folders import (
    copy_folder,
    folder_to_plain,
    plain_to_folder,
    remove_folder,
)
from focus.errors import EnvError, FocusError
from focus.problem import Message, Problem
from focus.records.strict_json import dumps, loads
from focus.testing.episodes import FolderTape

PROBLEM = Problem(id="p", prompt="Talk.")
LIMIT = 10**6


def rich(folder: Path) -> Path:
    """A folder with everything that has a copy."""
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "a" / "text").write_text("text")
    (folder / "a" / "b" / "run").write_bytes(b"\x00\xff")
    (folder / "a" / "b" / "run").chmod(0o750)
    (folder / "relative").symlink_to("a/text")
    (folder / "absolute").symlink_to(folder / "a" / "b")
    (folder / "nowhere").symlink_to("a/missing")
    (folder / "a" / "b").chmod(0o550)
    return folder


def seen(folder: Path) -> dict[str, Any]:
    """Everything in a folder by its place, links by where they lead inside it."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.path.relpath(path.parent / os.readlink(path), folder)
        elif path.is_dir():
            found[name] = stat.S_IMODE(path.stat().st_mode)
        else:
            status = path.stat()
            found[name] = (path.read_bytes(), stat.S_IMODE(status.st_mode), status.st_mtime_ns)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return rich(tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def test_a_copy_is_equal_and_its_links_stay_inside_it(source: Path, target: Path) -> None:
    before = seen(source)
    copy_folder(source, target)
    assert seen(target) == before == seen(source)
    assert (target / "absolute").resolve() == (target / "a" / "b").resolve()
    (target / "relative").write_text("changed")
    (target / "absolute" / "run").write_bytes(b"changed")
    assert seen(source) == before
    remove_folder(target)
    assert not target.exists()
    remove_folder(target)


def test_a_stored_folder_comes_back_equal(source: Path, target: Path) -> None:
    kept = loads(dumps(folder_to_plain(source, most_bytes=LIMIT), what="folder"), where="folder")
    plain_to_folder(kept, target)
    assert seen(target) == seen(source)
    assert folder_to_plain(target, most_bytes=LIMIT) == kept


def outside(folder: Path) -> None:
    (folder / "out").symlink_to(folder.parent)


def climbing(folder: Path) -> None:
    (folder / "a" / "out").symlink_to("../../elsewhere")


def round_about(folder: Path) -> None:
    (folder / "step").symlink_to("a")
    (folder / "out").symlink_to("step/../../elsewhere")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize("plant", [outside, climbing, round_about, pipe])
def test_what_has_no_copy_is_refused(
    plant: Callable[[Path], None], source: Path, target: Path
) -> None:
    plant(source)
    for attempt in (
        lambda: copy_folder(source, target),
        lambda: folder_to_plain(source, most_bytes=LIMIT),
    ):
        with pytest.raises(EnvError, match=r"leads to|no copy"):
            attempt()
    assert not list(target.iterdir())


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_a_snapshot_cannot_write_outside(name: str, target: Path) -> None:
    with pytest.raises(EnvError, match="not inside"):
        plain_to_folder({"folders": [], "links": [], "files": [[name, 0o600, 0, ""]]}, target)
    with pytest.raises(EnvError, match="outside"):
        plain_to_folder({"folders": [], "files": [], "links": [["x", "../out"]]}, target)


def test_a_snapshot_beyond_its_size_is_refused(source: Path) -> None:
    size = sum(p.stat().st_size for p in source.rglob("*") if p.is_file() and not p.is_symlink())
    folder_to_plain(source, most_bytes=size)
    with pytest.raises(EnvError, match="most_bytes"):
        folder_to_plain(source, most_bytes=size - 1)


def test_an_episode_that_fails_to_open_leaves_no_folder(tmp_path: Path) -> None:
    class Failing(FolderTape):
        def reset(self, problem: Problem) -> Sequence[Message]:
            raise ValueError("no game today")

    class Unmade(FolderTape):
        def __init__(self, folder: Path) -> None:
            raise ValueError("no game today")

    async def main() -> None:
        for episode in (Failing, Unmade):
            env = DirectoryEnv(episode, scratch=tmp_path)
            with pytest.raises(ValueError, match="no game"):
                await env.reset(PROBLEM)
            assert env.open_states == 0
        env = DirectoryEnv(FolderTape, scratch=tmp_path)
        with pytest.raises(FocusError):
            await env.restore({"files": 5})
        assert env.open_states == 0

    anyio.run(main)
    assert not list(tmp_path.iterdir())


def test_a_fork_finds_a_link_that_an_action_planted(tmp_path: Path) -> None:
    class Planting(FolderTape):
        def step(self, action: str) -> Transition:
            (self.folder / "out").symlink_to("/etc")
            return super().step(action)

    async def main() -> None:
        env = DirectoryEnv(Planting, scratch=tmp_path)
        root, _ = await env.reset(PROBLEM)
        planted = await env.step(await env.fork(root), "x", None)
        with pytest.raises(EnvError, match="leads to /etc, outside"):
            await env.fork(planted.state)
        for state in (planted.state, root):
            await env.release(state)

    anyio.run(main)
    assert not list(tmp_path.iterdir())


@given(
    st.dictionaries(
        st.text("ab", min_size=1, max_size=3), st.binary(max_size=30), min_size=1, max_size=4
    )
)
def test_any_files_come_back(tmp_path_factory: pytest.TempPathFactory, files: Any) -> None:
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "target"))
    for name, data in files.items():
        (source / name).write_bytes(data)
    plain_to_folder(folder_to_plain(source, most_bytes=LIMIT), target)
    assert seen(target) == seen(source)
