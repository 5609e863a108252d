"""What ``/proc`` says of processes; elsewhere than on Linux there are none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ("PROC", "group_is_empty", "group_of", "pids", "stat_of")

PROC = Path("/proc")


def pids() -> Iterator[int]:
    """All process ids."""
    with contextlib.suppress(OSError):
        for name in os.listdir(PROC):
            if name.isdecimal():
                yield int(name)


def stat_of(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the name, which may hold anything; None when gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def group_of(pid: int) -> int | None:
    """The group of a process that is alive: a zombie has ended."""
    fields = stat_of(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[2])


def group_is_empty(group: int) -> bool:
    """Nobody of the group is left, the dead that nobody waited for not counted."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return not any(group_of(pid) == group for pid in pids())
