"""One command in a process of its own: bounded in time, memory, files and output."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT

import anyio
import anyio.abc

from focus._processes import group_is_empty
from focus.errors import ConfigError, EnvError

__all__ = ("Ran", "Sandbox")

_LIMIT_THEN_RUN = """\
import os, resource, sys
cpu_s, memory_mb, file_mb = map(int, sys.argv[1:4])
for what, most in (
    (resource.RLIMIT_CPU, cpu_s),
    (resource.RLIMIT_AS, memory_mb << 20),
    (resource.RLIMIT_FSIZE, file_mb << 20),
    (resource.RLIMIT_CORE, 0),
):
    resource.setrlimit(what, (most, most))
os.execvp(sys.argv[4], sys.argv[4:])
"""
"""Runs in the child: limits set before the command's first instruction, whatever it is."""

_DYING_S = 5.0
"""Longest wait for killed processes; a disk that hangs can keep one for ever."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command.

    Attributes:
        code: exit code, negative for a signal; None when it was stopped at the deadline.
        output: what it printed, on both streams, up to the sandbox's limit.
        is_cut: it printed more.
    """

    code: int | None
    output: bytes
    is_cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """How far a command may go.

    It gets no shell, no descriptor but its three streams, an environment of six names
    without anything of ours, a session of its own that is killed whole at the end, and the
    limits below. That bounds accidents. It is **not** a wall against hostile code: the command
    runs as the same user, may read what that user may read, may use the network, and may
    leave a process that made a session of its own. Where that matters give a `wrapper` that
    shuts it in, or run the collector itself in a container.

    Attributes:
        seconds: most wall time.
        memory_mb: address space of each of its processes.
        file_mb: largest file that it may write.
        output_bytes: most output that is kept; the rest is read and dropped.
        wrapper: words put before every command, such as
            ``("bwrap", "--ro-bind", "/", "/", "--bind", ".", ".", "--unshare-all")``.

    Raises:
        ConfigError: a limit is not positive.
    """

    seconds: float = 10.0
    memory_mb: int = 512
    file_mb: int = 16
    output_bytes: int = 16_384
    wrapper: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        limits = (self.seconds, self.memory_mb, self.file_mb, self.output_bytes)
        if not all(math.isfinite(limit) and limit > 0 for limit in limits):
            raise ConfigError(f"limits of a sandbox must be positive and finite, got {limits}")

    async def run(self, command: Sequence[str], folder: Path, *, stdin: bytes = b"") -> Ran:
        """Run a command in `folder` to its end or to the deadline.

        Raises:
            EnvError: it cannot be started.
        """
        try:
            process = await anyio.open_process(
                self._line(command),
                cwd=folder,
                env=_environment(folder),
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise EnvError(f"{command[0]} cannot be run: {error.strerror}") from error
        kept = bytearray()
        try:
            with anyio.move_on_after(self.seconds) as deadline:
                size = await _talk(process, stdin, kept, most=self.output_bytes)
                await process.wait()
        finally:
            await _end(process)
        if deadline.cancelled_caught:
            return Ran(None, bytes(kept), len(kept) >= self.output_bytes)
        return Ran(process.returncode, bytes(kept), size > self.output_bytes)

    def _line(self, command: Sequence[str]) -> list[str]:
        limits = (math.ceil(self.seconds) + 1, self.memory_mb, self.file_mb)
        launch = (sys.executable, "-I", "-S", "-c", _LIMIT_THEN_RUN, *map(str, limits))
        return [*self.wrapper, *launch, *command]


async def _talk(process: anyio.abc.Process, stdin: bytes, kept: bytearray, *, most: int) -> int:
    """Give it its input and read until it closes its output; how much it printed."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.send(stdin)
    await process.stdin.aclose()
    size = 0
    async for chunk in process.stdout:
        kept += chunk[: max(0, most - size)]
        size += len(chunk)
    return size


async def _end(process: anyio.abc.Process) -> None:
    """Kill its whole group and wait until nobody in it writes any more."""
    with anyio.CancelScope(shield=True):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await process.aclose()
        with anyio.move_on_after(_DYING_S):
            while not group_is_empty(process.pid):  # noqa: ASYNC110 - nobody tells of these
                await anyio.sleep(0.005)


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
