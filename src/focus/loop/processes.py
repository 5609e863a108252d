"""Child processes that outlive their supervisor and are found again.

Every child leads a process group and carries a mark in its environment. A supervisor that
was killed leaves its children running; the next one finds them by the mark and goes on
with them. That needs ``/proc``: elsewhere than on Linux nothing is found, and a killed
supervisor's children must be ended by hand.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from focus._processes import PROC, group_is_empty, group_of, pids, stat_of
from focus.errors import ConfigError

__all__ = ("MARK_VARIABLE", "Process", "end_all", "find_marked", "start")

MARK_VARIABLE = "FOCUS_LOOP_CHILD"
_POLL_S = 0.02
_KILL_S = 1.0
"""What a killed process needs at most to be gone, unless the kernel holds it."""


@dataclass(slots=True)
class Process:
    """A child, started here or found.

    Attributes:
        pid: also its process group.
        started: when, in the kernel's ticks; tells it from a later process of its number.
        own: the handle, if this process started it.
    """

    pid: int
    started: str
    own: subprocess.Popen[bytes] | None = None

    def has_ended(self) -> bool:
        """Whether the child itself is gone; members of its group may live on."""
        if self.own is not None:
            return self.own.poll() is not None
        return _started(self.pid) != self.started

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and for one that another process started."""
        return None if self.own is None else self.own.returncode

    def signal_group(self, number: signal.Signals) -> None:
        """To the child and everything it started; those that are gone do not matter."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def group_is_empty(self) -> bool:
        """Nobody of the group is left, the dead that nobody waited for not counted."""
        return group_is_empty(self.pid)


def start(
    command: Sequence[str], *, mark: str, log: Path, folder: Path, environment: Mapping[str, str]
) -> Process:
    """Start a child in a group of its own, which can be found; what it prints is added to `log`.

    Raises:
        ConfigError: the command cannot be run.
    """
    with open(log, "ab") as output:
        try:
            own = subprocess.Popen(
                list(command),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **environment, MARK_VARIABLE: mark},
            )
        except OSError as error:
            raise ConfigError(f"cannot start {command[0]!r}: {error.strerror}") from error
    _until_marked(own, mark)
    return Process(own.pid, _started(own.pid) or "", own)


def _until_marked(own: subprocess.Popen[bytes], mark: str) -> None:
    """Its environment can be read a moment after the kernel told that it was started."""
    deadline = time.monotonic() + _KILL_S
    while PROC.exists() and own.poll() is None and not _is_marked(own.pid, mark):
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)


def find_marked(mark: str) -> Process | None:
    """The living leader of the group that was started under `mark`."""
    for pid in pids():
        if group_of(pid) != pid:
            continue
        started = _started(pid)
        if _is_marked(pid, mark) and started is not None:
            return Process(pid, started)
    return None


def _is_marked(pid: int, mark: str) -> bool:
    try:
        environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{MARK_VARIABLE}={mark}".encode() in environment


def end_all(processes: Sequence[Process], *, patience_s: float) -> None:
    """End groups: asked first, killed after `patience_s`; returns when nobody is left."""
    for process in processes:
        process.signal_group(signal.SIGTERM)
    left = _wait_for(processes, patience_s)
    for process in left:
        process.signal_group(signal.SIGKILL)
    _wait_for(left, _KILL_S)


def _wait_for(processes: Sequence[Process], patience_s: float) -> list[Process]:
    """Those whose group is not over in time."""
    deadline = time.monotonic() + patience_s
    left = list(processes)
    while left := [process for process in left if not _is_over(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    return left


def _is_over(process: Process) -> bool:
    return process.has_ended() and process.group_is_empty()


def _started(pid: int) -> str | None:
    fields = stat_of(pid)
    return None if fields is None or fields[0] in "ZX" else fields[19]
