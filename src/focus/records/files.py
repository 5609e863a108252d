"""Whole-file writes: the only place of this package that touches a disk.

A reader must see all of a file or none of it, whatever fails or dies in between. So
the bytes go to a temporary file beside the target, and one system call gives that
file its name. Each call is a method of :class:`Files`, so that a test can make the
n-th one fail.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Container, Iterator
from pathlib import Path

from focus.errors import StoreError

__all__ = (
    "OS_FILES",
    "TEMPORARY_SUFFIX",
    "Files",
    "holds_only",
    "is_disk_fault",
    "listed",
    "read_if_present",
    "read_whole",
    "store_error",
    "sync_tree",
    "write_whole",
)

TEMPORARY_SUFFIX = ".focus-tmp"

_REMEDIES = {
    errno.ENOSPC: "Free space on that disk, then write again",
    errno.EDQUOT: "Raise or free the disk quota, then write again",
    errno.EFBIG: "Raise the file size limit of this process, then write again",
    errno.EACCES: "Grant this process write permission there, or choose another path",
    errno.EPERM: "Grant this process write permission there, or choose another path",
    errno.EROFS: "That file system is read-only; choose another path",
    errno.ENOTDIR: "A file stands where a directory is needed; choose another path",
    errno.EEXIST: "Something else already stands there; choose another path",
    errno.EISDIR: "A directory stands there; choose another path",
    errno.ENOENT: "Check that the path still exists",
    errno.ENAMETOOLONG: "Choose a shorter path",
    errno.EINTR: "A signal interrupted the call; write again",
    errno.EIO: "The device failed; check it, then write again",
}

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


_NUMBERS = itertools.count()
"""With the process id, names no other temporary file of this process has."""


class Files:
    """The operating system's file calls, one method each."""

    def create(self, path: Path) -> int:
        """Open a new file for writing; FileExistsError if anything has that name."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def make_directory(self, path: Path) -> None:
        os.makedirs(path, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


OS_FILES = Files()


def store_error(path: Path, doing: str, error: OSError) -> StoreError:
    """Our error for one of the system's, with the path and what to do about it."""
    reason = error.strerror or str(error) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "Check the disk and the path, then try again")
    return StoreError(f"{path}: cannot {doing}: {reason}. {remedy}.")


def listed(directory: Path) -> list[str]:
    """Names in a directory, sorted.

    Raises:
        StoreError: it is missing or unreadable.
    """
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        raise store_error(directory, "list it", error) from error


def holds_only(directory: Path, names: Container[str]) -> bool:
    """Whether nothing is in a directory but files and empty folders of these names.

    Temporary files of a dead writer do not count.

    Raises:
        StoreError: it is unreadable.
    """
    for name in listed(directory):
        path = directory / name
        if name.endswith(TEMPORARY_SUFFIX):
            continue
        if name not in names or (path.is_dir() and listed(path)):
            return False
    return True


def read_whole(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        StoreError: it is missing or unreadable.
    """
    data = read_if_present(path)
    if data is None:
        raise StoreError(f"{path}: there is no such file")
    return data


def read_if_present(path: Path) -> bytes | None:
    """All bytes of a file; None when there is none.

    Raises:
        StoreError: it is there and unreadable.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error(path, "read it", error) from error


def write_whole(
    path: Path,
    data: bytes,
    *,
    overwrite: bool,
    fsync: bool = False,
    files: Files = OS_FILES,
) -> None:
    """Make `path` hold exactly `data`, or leave everything as it was.

    Args:
        path: the target; its directory exists.
        data: the whole content.
        overwrite: replace an older file; otherwise an existing one is an error.
        fsync: survive a power loss too, once this returns.
        files: the file calls.

    Raises:
        FileExistsError: `path` exists and `overwrite` is off.
        StoreError: a file call failed; no part of `data` is visible under `path`.
    """
    try:
        with _temporary(path, data, fsync=fsync, files=files) as temporary:
            if overwrite:
                files.replace(temporary, path)
            else:
                _publish_new(temporary, path, files)
        if fsync:
            _sync_name(path, keep=overwrite, files=files)
    except FileExistsError:
        raise
    except OSError as error:
        raise store_error(path, "write it", error) from error


@contextlib.contextmanager
def _temporary(target: Path, data: bytes, *, fsync: bool, files: Files) -> Iterator[Path]:
    """A closed file beside `target` that holds `data`; gone afterwards."""
    temporary, descriptor = _create_beside(target, files)
    try:
        try:
            _write_all(descriptor, data, files)
            if fsync:
                files.fsync(descriptor)
        finally:
            # Some network file systems report a full disk only here.
            files.close(descriptor)
        yield temporary
    finally:
        # Readers skip temporary names, so one that cannot be removed harms nobody.
        with contextlib.suppress(OSError):
            files.unlink(temporary)


def _create_beside(target: Path, files: Files) -> tuple[Path, int]:
    """A name that no living or dead writer of this directory holds."""
    for number in _NUMBERS:
        path = target.with_name(f".{os.getpid()}-{number}{TEMPORARY_SUFFIX}")
        try:
            return path, files.create(path)
        except FileExistsError:
            continue
    raise AssertionError("unreachable: the count is infinite")


def _write_all(descriptor: int, data: bytes, files: Files) -> None:
    """One write call, and more only if the system took less than all of it."""
    rest = memoryview(data)
    while rest:
        taken = files.write(descriptor, rest)
        if taken <= 0:
            raise OSError(errno.EIO, "the system accepted no more bytes")
        rest = rest[taken:]


def _publish_new(temporary: Path, path: Path, files: Files) -> None:
    """Name the file, atomically refusing a name in use.

    Where the file system has no hard links the check and the rename are two steps;
    two writers of one name at the same instant can then replace each other.
    """
    try:
        files.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        files.replace(temporary, path)


def _sync_name(path: Path, *, keep: bool, files: Files) -> None:
    """Make the new name durable, or take it back so that the caller may write again."""
    try:
        files.sync_directory(path.parent)
    except OSError:
        if not keep:
            with contextlib.suppress(OSError):
                files.unlink(path)
        raise


def sync_tree(folder: Path, *, files: Files = OS_FILES) -> None:
    """Ask the disk to hold all of `folder`, before it gets its name."""
    for path in (*sorted(folder.rglob("*")), folder):
        if path.is_dir():
            files.sync_directory(path)
        else:
            with open(path, "rb") as stream:
                files.fsync(stream.fileno())


def is_disk_fault(error: BaseException) -> bool:
    """A fault of the disk, not one of ours; safetensors has a type of its own for it."""
    safetensors = sys.modules.get("safetensors")
    own = () if safetensors is None else (safetensors.SafetensorError,)
    return isinstance(error, (OSError, *own)) and not isinstance(error, StoreError)
