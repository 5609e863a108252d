"""The run directory: where things lie, and safe ways to write them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from focus.errors import StoreError
from focus.records.files import (
    OS_FILES,
    Files,
    holds_only,
    is_disk_fault,
    read_if_present,
    sync_tree,
    write_whole,
)

__all__ = ("RunDirectory",)

_README = """\
A FOCUS training run.

config.json     every setting, as resolved
run.json        who wrote this run, and with which versions
summary.json    the result, once the run is complete
metrics.jsonl   one line per applied round
ledger.sqlite   rounds issued, collected and applied; `focus train --resume` reads it
trees/          rollout trees; look at them with `focus view RUN` or `focus show FILE`
critic/         critic targets, one JSONL file per prompt
checkpoints/    state after the last rounds: weights, optimizers, critic
models/         initial and final policy, as Hugging Face model folders
tensorboard/    the same metrics for TensorBoard
"""

_BEFORE_CONFIG = frozenset(
    {"README.txt", "trees", "checkpoints", "models", ".lock", "ledger.sqlite"}
    | {f"ledger.sqlite-{kind}" for kind in ("journal", "wal", "shm")}
)
"""What a start leaves that was killed before its config.json stood."""


class RunDirectory:
    """Paths and atomic writes of one run.

    A run has begun once its config.json stands: a start that is killed before that leaves a
    folder in which the next one begins anew.

    Args:
        root: the run's folder.
        files: the file calls, replaced by tests.
    """

    def __init__(self, root: Path, *, files: Files = OS_FILES) -> None:
        self.root = root
        self._files = files
        self.config: Path = root / "config.json"
        self.ledger: Path = root / "ledger.sqlite"
        self.metrics: Path = root / "metrics.jsonl"
        self.trees: Path = root / "trees"
        self.critic: Path = root / "critic"
        self.checkpoints: Path = root / "checkpoints"
        self.models: Path = root / "models"
        self.tensorboard: Path = root / "tensorboard"
        self.summary: Path = root / "summary.json"

    @classmethod
    def create(cls, root: Path) -> RunDirectory:
        """A new run in a folder that does not exist yet, is empty, or holds a start that died.

        Raises:
            StoreError: it holds another run or other files, is a file, or is not writable.
        """
        run = cls(root)
        try:
            _refuse_occupied(root)
            for folder in (run.trees, run.checkpoints, run.models):
                folder.mkdir(parents=True, exist_ok=True)
            (root / "README.txt").write_text(_README)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"{root} cannot be written: {error}") from error
        return run

    @classmethod
    def reopen(cls, root: Path) -> RunDirectory:
        """An existing run.

        Raises:
            StoreError: there is none.
        """
        run = cls(root)
        for path in (run.ledger, run.config):
            if not path.exists():
                raise StoreError(
                    f"{root} holds no run to resume (no {path.name}); start it without --resume"
                )
        return run

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in this folder.

        Raises:
            StoreError: another process does.
        """
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(open(self.root / ".lock", "w"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(f"{self.root}: another process is training this run") from error
            except OSError as error:
                raise StoreError(f"{self.root} cannot be locked: {error}") from error
            yield

    def write_json(self, path: Path, value: Any) -> None:
        """Replace a JSON file whole."""
        text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False)
        write_whole(path, f"{text}\n".encode(), overwrite=True, fsync=True)

    def write_folder(self, path: Path, fill: Callable[[Path], None]) -> None:
        """Fill a folder beside `path`, then put it in place whole; it survives a power loss.

        Raises:
            StoreError: the disk refused; nothing half-written stays.
        """
        temporary = path.with_name(f".{path.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            fill(temporary)
            sync_tree(temporary, files=self._files)
            if path.exists():
                shutil.rmtree(path)
            self._files.replace(temporary, path)
            self._files.sync_directory(path.parent)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if is_disk_fault(error):
                raise StoreError(f"{path}: {error}. Free space there, then resume.") from error
            raise

    def keep_checkpoints(self, names: set[str]) -> None:
        """Remove checkpoints that no restart would read."""
        for folder in self.checkpoints.iterdir():
            if folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)


def _refuse_occupied(root: Path) -> None:
    if root.is_file():
        raise StoreError(f"{root} is a file; choose a folder for the run")
    if (root / "config.json").exists() and (root / "ledger.sqlite").exists():
        raise StoreError(
            f"{root} holds a run already; continue it with --resume, or choose another --out"
        )
    if root.is_dir() and not (holds_only(root, _BEFORE_CONFIG) and _is_our_readme(root)):
        raise StoreError(f"{root} is not empty and no run of FOCUS; choose another --out")


def _is_our_readme(root: Path) -> bool:
    """None at all, ours, or as much of ours as a start wrote that was killed over it."""
    return _README.encode().startswith(read_if_present(root / "README.txt") or b"")
