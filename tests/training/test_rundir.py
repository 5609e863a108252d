"""The run's folder: nobody else's, one process at a time, and files that are whole."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from focus.errors import StoreError
from focus.records.files import Files
from focus.training.rundir import RunDirectory


def foreign(root: Path) -> None:
    root.mkdir()
    (root / "thesis.tex").touch()


def run_already(root: Path) -> None:
    RunDirectory.create(root)
    (root / "ledger.sqlite").touch()
    (root / "config.json").touch()


def readme_of_another(root: Path) -> None:
    root.mkdir()
    (root / "README.txt").write_text("My thesis.")


def models_of_another(root: Path) -> None:
    (root / "models").mkdir(parents=True)
    (root / "models" / "best").touch()


def closed(root: Path) -> None:
    root.parent.joinpath("file").touch()


@pytest.mark.parametrize(
    ("prepare", "where", "said"),
    [
        (foreign, "run", "no run of FOCUS; choose another"),
        (run_already, "run", "--resume"),
        (readme_of_another, "run", "no run of FOCUS; choose another"),
        (models_of_another, "run", "no run of FOCUS; choose another"),
        (lambda root: root.touch(), "run", "is a file"),
        (closed, "file/run", "cannot be written"),
    ],
)
def test_a_place_that_is_taken_is_refused_and_left_alone(
    prepare: Callable[[Path], None], where: str, said: str, tmp_path: Path
) -> None:
    prepare(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match=said):
        RunDirectory.create(tmp_path / where)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("make", [lambda root: None, lambda root: root.mkdir()])
def test_a_new_or_empty_folder_becomes_a_run(make: Callable[[Path], None], tmp_path: Path) -> None:
    root = tmp_path / "deep" / "run"
    root.parent.mkdir()
    make(root)
    RunDirectory.create(root)
    assert sorted(path.name for path in root.iterdir()) == [
        "README.txt",
        "checkpoints",
        "models",
        "trees",
    ]


@pytest.mark.parametrize("prepare", [lambda root: None, foreign, lambda root: root.touch()])
def test_there_is_nothing_to_resume_without_a_ledger(
    prepare: Callable[[Path], None], tmp_path: Path
) -> None:
    prepare(tmp_path / "run")
    with pytest.raises(StoreError, match="no run to resume"):
        RunDirectory.reopen(tmp_path / "run")


HOLDER = """
import sys
from pathlib import Path
from focus.training.rundir import RunDirectory
with RunDirectory(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_run_is_trained_by_one_process_and_a_dead_one_holds_no_lock(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    command = [sys.executable, "-c", HOLDER, str(run.root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(StoreError, match="another process"), run.locked():
            pass
        holder.kill()
    with run.locked():
        pass
    with run.locked():
        pass


def test_a_run_that_is_gone_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be locked"), RunDirectory(tmp_path / "x").locked():
        pass


def fill(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "new.json").write_text("{}")


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    target = run.models / "final"
    run.write_folder(target, lambda folder: (folder / "old").touch() or None)
    run.write_folder(target, fill)
    assert sorted(path.name for path in target.rglob("*")) == ["inner", "new.json"]
    assert [path.name for path in run.models.iterdir()] == ["final"]


def test_a_folder_and_its_name_are_on_disk_before_anybody_refers_to_it(tmp_path: Path) -> None:
    synced: list[tuple[str, list[str]]] = []

    class Listening(Files):
        def sync_directory(self, path: Path) -> None:
            super().sync_directory(path)
            synced.append((path.name, os.listdir(path)))

    root = RunDirectory.create(tmp_path / "run").root
    run = RunDirectory(root, files=Listening())
    run.write_folder(run.models / "final", fill)
    assert synced == [("inner", ["new.json"]), (".final.tmp", ["inner"]), ("models", ["final"])]


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (OSError(28, "No space left on device"), StoreError),
        (SafetensorError("disk full"), StoreError),
        (ValueError("a bug"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_fault_while_writing_leaves_the_old_folder_and_no_other(
    fault: BaseException, seen: type[BaseException], tmp_path: Path
) -> None:
    run = RunDirectory.create(tmp_path / "run")
    target = run.checkpoints / "round-0000-0"
    run.write_folder(target, lambda folder: (folder / "old").touch() or None)

    def fail(folder: Path) -> None:
        fill(folder)
        raise fault

    with pytest.raises(seen):
        run.write_folder(target, fail)
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in run.checkpoints.iterdir()] == ["round-0000-0"]


def test_what_a_killed_writer_left_is_cleared(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    left = run.checkpoints / ".round-0001-0.tmp"
    left.mkdir()
    (left / "half").touch()
    run.write_folder(run.checkpoints / "round-0001-0", fill)
    assert [path.name for path in run.checkpoints.iterdir()] == ["round-0001-0"]


def test_only_checkpoints_that_a_restart_reads_are_kept(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    for name in ("round-0000-0", "round-0001-0", "round-0002-1", ".round-0003-0.tmp"):
        (run.checkpoints / name).mkdir()
    run.keep_checkpoints({"round-0001-0", "round-0002-1"})
    assert sorted(os.listdir(run.checkpoints)) == ["round-0001-0", "round-0002-1"]


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.write_json(run.summary, {"b": 1.5, "a": [1]})
    assert json.loads(run.summary.read_text()) == {"a": [1], "b": 1.5}
    with pytest.raises(ValueError, match="JSON"):
        run.write_json(run.summary, {"a": float("nan")})
    assert json.loads(run.summary.read_text()) == {"a": [1], "b": 1.5}
