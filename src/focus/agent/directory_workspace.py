"""A workspace on disk: copied when it is first written to, by reference where that is possible."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from focus.agent.workspace import checked_path
from focus.errors import StoreError, ToolError

if TYPE_CHECKING:
    from focus.agent.tools import Tool

__all__ = ("DirectoryWorkspace", "copy_tree")

T = TypeVar("T")

_counting = threading.Lock()
"""Guards the number of a folder's users, which worker threads change too."""

_FICLONE = 0x40049409
"""Linux: share a file's blocks until one side writes (btrfs, xfs, bcachefs)."""


@dataclass(slots=True)
class _Folder:
    """A folder that copies share until one of them writes.

    Attributes:
        path: the folder.
        is_ours: made here, so removed with its last user.
        users: copies that read from it.
    """

    path: Path
    is_ours: bool
    users: int = 1


class DirectoryWorkspace:
    """Files below one folder.

    Forks share a folder and get one of their own at the first write, or when `folder` is
    asked for (for a program that runs there). Copies share blocks where the file system
    can. A folder that was passed in is never changed and never removed.

    Args:
        source: the files to begin with; None begins with none.
        scratch: where copies are made; None is the system's temporary folder.
        tools: what the policy may do with it.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | None = None,
        *,
        scratch: str | os.PathLike[str] | None = None,
        tools: Sequence[Tool] = (),
    ) -> None:
        self._folder = None if source is None else _Folder(Path(source), is_ours=False)
        self._scratch = scratch
        self.tools: tuple[Tool, ...] = tuple(tools)

    async def folder(self) -> Path:
        """This copy's own folder, to run programs in; what they change is this branch's.

        Ask again after a fork: from then on the folder is shared.

        Raises:
            StoreError: it cannot be made.
        """
        return await self._in_thread(self._mine)

    async def fork(self) -> DirectoryWorkspace:
        fork = DirectoryWorkspace(scratch=self._scratch, tools=self.tools)
        if self._folder is not None:
            with _counting:
                self._folder.users += 1
            fork._folder = self._folder
        return fork

    async def release(self) -> None:
        """Let go of the folder; its last user removes it."""
        folder, self._folder = self._folder, None
        if folder is not None:
            await self._in_thread(lambda: _left(folder))

    async def snapshot(self) -> Mapping[str, str]:
        return await self._in_thread(lambda: {p: self._read(p) for p in self._paths()})

    async def restore(self, snapshot: Mapping[str, str]) -> DirectoryWorkspace:
        copy = DirectoryWorkspace(scratch=self._scratch, tools=self.tools)
        for path, text in snapshot.items():
            await copy.write(path, text)
        return copy

    async def read(self, path: str) -> str:
        return await self._in_thread(lambda: self._read(path))

    async def write(self, path: str, text: str) -> None:
        def put() -> None:
            target = self._inside(self._mine(), path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_bytes(text.encode("utf-8"))

        await self._in_thread(put)

    async def delete(self, path: str) -> None:
        def remove() -> None:
            self._read(path)
            self._inside(self._mine(), path).unlink()

        await self._in_thread(remove)

    async def paths(self) -> Sequence[str]:
        return await self._in_thread(self._paths)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await anyio.to_thread.run_sync(work)
        except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            raise ToolError(f"a file and a folder cannot share a path: {error.strerror}") from error
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"workspace in {self._root()}: {error}") from error

    def _root(self) -> Path | None:
        return None if self._folder is None else self._folder.path

    def _mine(self) -> Path:
        """A folder that only this copy uses."""
        shared = self._folder
        if shared is not None and shared.is_ours and shared.users == 1:
            return shared.path
        own = Path(tempfile.mkdtemp(prefix="focus-workspace-", dir=self._scratch))
        try:
            if shared is not None:
                copy_tree(shared.path, own)
        except BaseException:
            shutil.rmtree(own)
            raise
        self._folder = _Folder(own, is_ours=True)
        if shared is not None:
            _left(shared)
        return own

    def _paths(self) -> list[str]:
        root = self._root()
        if root is None:
            return []
        files = (p for p in root.rglob("*") if p.is_file() and not p.is_symlink())
        return sorted(p.relative_to(root).as_posix() for p in files)

    def _read(self, path: str) -> str:
        root = self._root()
        target = None if root is None else self._inside(root, path)
        if target is None or not target.is_file():
            raise ToolError(f"nothing is stored at {path[:80]!r}")
        try:
            return target.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ToolError(f"{path!r} holds no text") from error

    @staticmethod
    def _inside(root: Path, path: str) -> Path:
        """The file of a path; a link planted on the way is not followed."""
        target = root
        for name in checked_path(path).split("/"):
            target = target / name
            if target.is_symlink():
                raise ToolError(f"{path!r} is a link, which is not followed")
        return target


def _left(folder: _Folder) -> None:
    """One user less; the last one removes what was made here."""
    with _counting:
        folder.users -= 1
        is_last = folder.users == 0
    if is_last and folder.is_ours:
        shutil.rmtree(folder.path)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files below `source` into the folder `target`, links as links.

    Raises:
        OSError: a file cannot be read or written.
    """
    shutil.copytree(source, target, symlinks=True, copy_function=_copy, dirs_exist_ok=True)


def _copy(source: str, target: str) -> str:
    with open(source, "rb") as reader, open(target, "wb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:  # another file system, or one without shared blocks
            shutil.copyfileobj(reader, writer)
    shutil.copystat(source, target)
    return target
