"""File calls that fail on purpose, in one chosen way, or end the process."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from focus.records.files import Files

__all__ = ("FAULTS", "FailingFiles", "Fault", "KilledFiles")


@dataclass(frozen=True)
class Fault:
    """`code` None is a short write: half of the bytes are taken, and no error is told."""

    name: str
    code: int | None


FAULTS = (
    Fault("disk full", errno.ENOSPC),
    Fault("device error", errno.EIO),
    Fault("interrupted", errno.EINTR),
    Fault("no permission", errno.EACCES),
    Fault("short write", None),
)


class FailingFiles(Files):
    """Counts its calls; call number `at` fails. A disk that is full stays full for writes."""

    def __init__(self, fault: Fault, *, at: int, spared: tuple[str, ...] = ()) -> None:
        self._fault = fault
        self._at = at
        self._spared = spared
        self._calls = 0
        self.met = False
        self.left_open: set[int] = set()

    def _call(self, name: str) -> bool:
        """Whether this call is the one; raises for faults that are errors."""
        if name in self._spared:
            return False
        is_met = self._calls == self._at
        self._calls += 1
        self.met = self.met or is_met
        if is_met and self._fault.code is not None:
            raise OSError(self._fault.code, os.strerror(self._fault.code))
        return is_met

    def create(self, path: Path) -> int:
        self._call("create")
        descriptor = super().create(path)
        self.left_open.add(descriptor)
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        is_met = self._call("write")
        return super().write(descriptor, data[: len(data) // 2] if is_met else data)

    def fsync(self, descriptor: int) -> None:
        self._call("fsync")
        super().fsync(descriptor)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self.left_open.remove(descriptor)
        self._call("close")

    def link(self, source: Path, target: Path) -> None:
        self._call("link")
        super().link(source, target)

    def replace(self, source: Path, target: Path) -> None:
        self._call("replace")
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        super().unlink(path)

    def make_directory(self, path: Path) -> None:
        self._call("make_directory")
        super().make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._call("sync_directory")
        super().sync_directory(path)


class KilledFiles(Files):
    """Kills its process with SIGKILL once the system has taken `most` bytes.

    The byte that is one too many is never handed over; after exactly `most` the kill comes
    when the file has its name, so that every number of bytes is a point of its own.
    """

    def __init__(self, *, most: int) -> None:
        self._left = most

    def write(self, descriptor: int, data: memoryview) -> int:
        if len(data) > self._left:
            super().write(descriptor, data[: self._left])
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= len(data)
        return super().write(descriptor, data)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
