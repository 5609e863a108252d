"""Where versions of a store are made and unmade: in turns, and never half in sight."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from focus.critic.snapshot_files import disk_faults
from focus.records.files import Files, listed, store_error

__all__ = ("Workplace", "is_ours")

_LOCK = ".lock"
_INCOMING = ".incoming-"


def is_ours(name: str) -> bool:
    """Whether an entry beside the snapshots is a trace of work, and no snapshot."""
    return name.startswith((_INCOMING, _LOCK))


class Workplace:
    """The folder of a store's snapshots, as publishers use it.

    Args:
        snapshots: the folder; it exists.
        files: the file calls.
    """

    def __init__(self, snapshots: Path, files: Files) -> None:
        self._snapshots = snapshots
        self._files = files

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One publisher at a time; the system frees the lock when its holder dies."""
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(open(self._snapshots / _LOCK, "ab"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                raise store_error(self._snapshots, "lock it", error) from error
            yield

    @contextlib.contextmanager
    def incoming(self) -> Iterator[Path]:
        """A folder of our own beside the snapshots; gone afterwards unless it was named."""
        folder = self._snapshots / f"{_INCOMING}{uuid.uuid4().hex}"
        with contextlib.ExitStack() as stack:
            with self.locked(), disk_faults(self._snapshots):
                self._sweep()
                folder.mkdir()
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                # Held while its maker lives, so that nobody sweeps a folder in the making.
                alive = stack.enter_context(open(_alive(folder), "ab"))
                stack.callback(_alive(folder).unlink, missing_ok=True)
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder

    def remove(self, folder: Path) -> None:
        """Take a snapshot away; under the lock. Unnamed in one call, then swept.

        Raises:
            StoreError: it cannot be removed; it is there as before.
        """
        gone = self._snapshots / f"{_INCOMING}{uuid.uuid4().hex}"
        try:
            self._files.replace(folder, gone)
        except OSError as error:
            raise store_error(folder, "remove it", error) from error
        self._sweep()

    def _sweep(self) -> None:
        """Remove what publishers left that were killed."""
        for name in listed(self._snapshots):
            folder = self._snapshots / name.removesuffix(_LOCK)
            if name.startswith(_INCOMING) and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
                _alive(folder).unlink(missing_ok=True)


def _alive(folder: Path) -> Path:
    """Beside the folder and not in it, so that it never becomes part of a snapshot."""
    return folder.with_name(f"{folder.name}{_LOCK}")


def _is_abandoned(folder: Path) -> bool:
    """Whether nobody holds the lock of a folder in the making."""
    try:
        with open(_alive(folder), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True
