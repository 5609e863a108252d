"""Files that belong to a checkpoint: forked with it, changed by one branch only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from focus.errors import ToolError

if TYPE_CHECKING:
    from focus.agent.tools import Tool

__all__ = ("InMemoryWorkspace", "Workspace", "checked_path")

_MOST_PATH = 200


class Workspace(Protocol):
    """A set of named texts that every branch has for itself.

    An edge is taken on a fork, so the workspace of a checkpoint never changes and any
    number of branches may start from it. Whoever forks releases.

    Attributes:
        tools: what the policy may do with it; every environment of tools offers them too.
    """

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def fork(self) -> Workspace:
        """An independent copy."""
        ...

    async def release(self) -> None:
        """Let go of what this copy holds; forks of it live on."""
        ...

    async def snapshot(self) -> Mapping[str, str]:
        """All texts by path, in the order of paths: what `restore` takes."""
        ...

    async def restore(self, snapshot: Mapping[str, str]) -> Workspace:
        """A new workspace of the same kind that holds `snapshot`."""
        ...

    async def read(self, path: str) -> str:
        """The text at a path.

        Raises:
            ToolError: there is none.
        """
        ...

    async def write(self, path: str, text: str) -> None:
        """Put a text at a path, in place of an older one.

        Raises:
            ToolError: the path is not allowed.
        """
        ...

    async def delete(self, path: str) -> None:
        """Remove the text at a path.

        Raises:
            ToolError: there is none.
        """
        ...

    async def paths(self) -> Sequence[str]:
        """Paths with a text, sorted."""
        ...


def checked_path(path: str) -> str:
    """A path that stays inside a workspace on every system, or an error for the policy.

    Relative, with "/" between names; no empty name, ".", "..", backslash, colon or control
    character; at most 200 characters.

    Raises:
        ToolError: it is anything else.

    >>> checked_path("notes/today.md")
    'notes/today.md'
    >>> checked_path("../secrets")
    Traceback (most recent call last):
    focus.errors.ToolError: '../secrets' is not allowed as a path: '..' is no name
    """
    shown = repr(path[:80])
    if not path or len(path) > _MOST_PATH:
        raise ToolError(f"{shown} is not allowed as a path: 1 to {_MOST_PATH} characters")
    for name in path.split("/"):
        if name in ("", ".", "..") or name != name.strip(" ."):
            raise ToolError(f"{shown} is not allowed as a path: {name!r} is no name")
    if not path.isprintable() or set(path) & set('\\:*?"<>|'):
        raise ToolError(f"{shown} is not allowed as a path: it holds a reserved character")
    return path


class InMemoryWorkspace:
    """Texts in this process. A fork shares them until one side writes: it costs nothing.

    Args:
        files: what it starts with.
        tools: what the policy may do with it, e.g. ``[storage]``.

    Raises:
        ToolError: a path is not allowed.
    """

    def __init__(
        self, files: Mapping[str, str] | None = None, *, tools: Sequence[Tool] = ()
    ) -> None:
        self._files: Mapping[str, str] = {checked_path(p): t for p, t in (files or {}).items()}
        self.tools: tuple[Tool, ...] = tuple(tools)

    async def fork(self) -> InMemoryWorkspace:
        return self._holding(self._files)

    async def release(self) -> None:
        """Nothing is held outside memory."""

    @property
    def texts(self) -> Mapping[str, str]:
        """Every file, by path, in order."""
        return dict(sorted(self._files.items()))

    async def snapshot(self) -> Mapping[str, str]:
        return self.texts

    async def restore(self, snapshot: Mapping[str, str]) -> InMemoryWorkspace:
        return InMemoryWorkspace(snapshot, tools=self.tools)

    async def read(self, path: str) -> str:
        if path not in self._files:
            raise ToolError(f"nothing is stored at {path[:80]!r}")
        return self._files[path]

    async def write(self, path: str, text: str) -> None:
        self._files = {**self._files, checked_path(path): text}

    async def delete(self, path: str) -> None:
        await self.read(path)
        self._files = {name: text for name, text in self._files.items() if name != path}

    async def paths(self) -> Sequence[str]:
        return sorted(self._files)

    def _holding(self, files: Mapping[str, str]) -> InMemoryWorkspace:
        fork = InMemoryWorkspace(tools=self.tools)
        fork._files = files
        return fork
