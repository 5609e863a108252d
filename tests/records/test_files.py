"""A file appears whole or not at all, whichever call fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from focus.errors import StoreError
from focus.records.files import Files, listed, read_whole, write_whole
from focus.testing.files import FAULTS, FailingFiles, Fault

DATA = b"0123456789" * 10


def error_of(
    target: Path, *, overwrite: bool, fsync: bool = False, files: Files
) -> StoreError | None:
    try:
        write_whole(target, DATA, overwrite=overwrite, fsync=fsync, files=files)
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize("fsync", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_nth_call_fails(tmp_path: Path, fault: Fault, overwrite: bool, fsync: bool) -> None:
    """Every fault point is met by construction: n grows until a run meets none."""
    before = b"older" if overwrite else None
    n, refused = 0, 0
    while True:
        target = tmp_path / str(n) / "a.json"
        target.parent.mkdir()
        if before is not None:
            target.write_bytes(before)
        files = FailingFiles(fault, at=n)
        error = error_of(target, overwrite=overwrite, fsync=fsync, files=files)
        if error is None:
            assert target.read_bytes() == DATA
        else:
            refused += 1
            assert str(target) in str(error)
            assert target.exists() == overwrite
            assert not overwrite or target.read_bytes() in (before, DATA)
        assert files.left_open == set()
        if not files.met:
            break
        n += 1
    assert n >= 4
    assert refused or fault.name == "short write"
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_no_temporary_file_stays_behind(tmp_path: Path, fault: Fault) -> None:
    for n in range(12):
        files = FailingFiles(fault, at=n, spared=("unlink",))
        error_of(tmp_path / f"{n}.json", overwrite=False, files=files)
        assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    class Interrupted(Files):
        def fsync(self, descriptor: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a", DATA, overwrite=False, fsync=True, files=Interrupted())
    assert os.listdir(tmp_path) == []


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"first")
    with pytest.raises(FileExistsError):
        write_whole(target, DATA, overwrite=False)
    assert target.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


def test_a_planted_symlink_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    target = tmp_path / "a"
    target.symlink_to(outside)
    with pytest.raises(FileExistsError):
        write_whole(target, DATA, overwrite=False)
    assert not outside.exists()


def test_a_temporary_name_left_by_a_dead_writer_is_passed_over(tmp_path: Path) -> None:
    class Crowded(Files):
        left = 3

        def create(self, path: Path) -> int:
            if self.left:
                self.left -= 1
                path.write_bytes(b"half a rec")
            return super().create(path)

    write_whole(tmp_path / "a", DATA, overwrite=False, files=Crowded())
    assert (tmp_path / "a").read_bytes() == DATA
    assert sorted(path.read_bytes() for path in tmp_path.glob(".*")) == [b"half a rec"] * 3


class WithoutHardLinks(Files):
    def link(self, source: Path, target: Path) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")


def test_without_hard_links_a_name_in_use_is_still_refused(tmp_path: Path) -> None:
    target = tmp_path / "a"
    write_whole(target, DATA, overwrite=False, files=WithoutHardLinks())
    assert target.read_bytes() == DATA
    with pytest.raises(FileExistsError):
        write_whole(target, b"other", overwrite=False, files=WithoutHardLinks())
    assert target.read_bytes() == DATA
    assert os.listdir(tmp_path) == ["a"]


def test_a_failed_directory_sync_takes_the_new_name_back(tmp_path: Path) -> None:
    class NoDirectorySync(Files):
        def sync_directory(self, path: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StoreError, match="Input/output error"):
        write_whole(tmp_path / "a", DATA, overwrite=False, fsync=True, files=NoDirectorySync())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("action", [listed, read_whole])
def test_a_missing_path_is_named(tmp_path: Path, action: object) -> None:
    assert callable(action)
    with pytest.raises(StoreError, match="nowhere"):
        action(tmp_path / "nowhere")


def test_every_error_names_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Free space on that disk"):
        write_whole(tmp_path / "a", DATA, overwrite=False, files=FailingFiles(FAULTS[0], at=1))
