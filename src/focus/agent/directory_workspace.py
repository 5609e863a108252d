"""A workspace on disk: copied when it is first written to, by reference where that is possible."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from focus.agent.workspace import checked_path
from focus.errors import StoreError, ToolError

if TYPE_CHECKING:
    from focus.agent.tools import Tool

__all__ = ("DirectoryWorkspace", "copy_tree")

T = TypeVar("T")

_FICLONE = 0x40049409
"""Linux: share a file's blocks until one side writes (btrfs, xfs, bcachefs)."""


class DirectoryWorkspace:
    """Files below one folder.

    A fork reads its origin's files and gets a folder of its own at the first write, or when
    `folder` is asked for (for a program that runs there). Copies share blocks where the file
    system can. The folder that was passed in is never changed and never removed.

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
        self._source = None if source is None else Path(source)
        self._scratch = scratch
        self._own: Path | None = None
        self.tools = tuple(tools)

    async def folder(self) -> Path:
        """This copy's own folder, to run programs in; what they change is this branch's.

        Raises:
            StoreError: it cannot be made.
        """
        return await self._in_thread(self._mine)

    async def fork(self) -> DirectoryWorkspace:
        return DirectoryWorkspace(
            self._own or self._source, scratch=self._scratch, tools=self.tools
        )

    async def release(self) -> None:
        """Remove this copy's own folder. Forks that were not written to read from it: release
        them first, or together, as a collection does."""
        own, self._own = self._own, None
        if own is not None:
            await anyio.to_thread.run_sync(shutil.rmtree, own)

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
            raise StoreError(f"workspace in {self._own or self._source}: {error}") from error

    def _mine(self) -> Path:
        if self._own is None:
            own = Path(tempfile.mkdtemp(prefix="focus-workspace-", dir=self._scratch))
            try:
                if self._source is not None:
                    copy_tree(self._source, own)
            except BaseException:
                shutil.rmtree(own)
                raise
            self._own = own
        return self._own

    def _paths(self) -> list[str]:
        root = self._own or self._source
        if root is None:
            return []
        files = (p for p in root.rglob("*") if p.is_file() and not p.is_symlink())
        return sorted(p.relative_to(root).as_posix() for p in files)

    def _read(self, path: str) -> str:
        root = self._own or self._source
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
