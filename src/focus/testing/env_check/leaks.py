"""What an environment may leave behind: descriptors, processes, temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from focus._processes import pids, stat_of

__all__ = ("Footprint", "descendants", "footprint", "own_temporary_folder")


@dataclass(frozen=True, slots=True)
class Footprint:
    """What this process holds.

    Attributes:
        descriptors: open ones.
        processes: its descendants, those that ended and were not waited for included.
        files: entries of the temporary folder.
        states: that the environment itself counts as open.
    """

    descriptors: int
    processes: int
    files: int
    states: int

    def beyond(self, before: Footprint) -> list[str]:
        """What there is more of than before."""
        kinds = (
            ("open states", self.states - before.states),
            ("open descriptors", self.descriptors - before.descriptors),
            ("child processes", self.processes - before.processes),
            ("files or folders", self.files - before.files),
        )
        return [f"{more} {name}" for name, more in kinds if more > 0]


@contextmanager
def own_temporary_folder() -> Iterator[Path]:
    """A temporary folder that this process and its children use, and nobody else.

    It is removed at the end, with whatever was left in it.
    """
    name = "TMPDIR"
    before, inherited = tempfile.tempdir, os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="focus-check-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ[name] = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before
            if inherited is None:
                del os.environ[name]
            else:
                os.environ[name] = inherited


def footprint(
    folders: Sequence[Path], envs: Sequence[object] = (), *, processes: bool = True
) -> Footprint:
    """What is held now.

    Args:
        folders: counted with everything below them.
        envs: asked for ``open_states``, where they know it.
        processes: count them too, which reads all of /proc.
    """
    return Footprint(
        descriptors=_entries(Path("/proc/self/fd")),
        processes=len(descendants(os.getpid())) if processes else 0,
        files=sum(len(a) + len(b) for folder in folders for _, a, b in os.walk(folder)),
        states=sum(int(getattr(env, "open_states", 0)) for env in envs),
    )


def _entries(folder: Path) -> int:
    return len(os.listdir(folder)) if folder.exists() else 0


def descendants(root: int) -> set[int]:
    """Process ids below `root`; none where the system has no /proc."""
    children: dict[int, list[int]] = {}
    for pid in pids():
        fields = stat_of(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found
