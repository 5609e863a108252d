"""Measures rows one by one, each in a process that can be killed."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from focus.promises.base import Measured, Promise, Row, Size

__all__ = ("measured_row", "this_machine")

_SET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_LAST_WORDS = 2_000


def this_machine(size: Size) -> str:
    """Date, size and machine, as a row says where its figure comes from."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{today}, {size.value}, {machine}, Python {platform.python_version()}"


async def measured_row(
    promise: Promise, size: Size, *, progress: Callable[[int, int], None] = lambda done, of: None
) -> Row:
    """Measure one promise, in bounded time; whatever goes wrong is a row that is not met.

    Args:
        promise: the row; one without a measure comes back without a figure.
        size: quick or full.
        progress: told how many of how many trials are done.
    """
    if promise.measure is None:
        return Row(promise=promise)
    folder = Path(tempfile.mkdtemp(prefix=f"focus-{promise.id}-"))
    try:
        result = await _in_child(promise, size, folder, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _row(promise, result, this_machine(size))


def _row(promise: Promise, result: dict[str, Any], measured_on: str) -> Row:
    if "error" in result:
        return Row(promise=promise, error=result["error"], measured_on=measured_on)
    found = Measured(result["figure"], result["trials"], result["detail"])
    return Row(promise=promise, measured=found, measured_on=measured_on)


async def _in_child(
    promise: Promise, size: Size, folder: Path, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """The child's last line, or why there is none."""
    limit_s = promise.limits.of(size)
    stand = folder / "stand"
    stand.mkdir()
    with (folder / "stderr").open("wb") as stderr, anyio.move_on_after(limit_s):
        async with _child(promise, size, stand, stderr.fileno()) as child:
            async for line in _lines(child):
                message: dict[str, Any] = json.loads(line)
                if "done" not in message:
                    return message
                progress(message["done"], message["of"])
            code = await child.wait()
        return {"error": f"the row's process ended with {code}: {_said(folder / 'stderr')}"}
    return {"error": f"still measuring after {limit_s:g} s"}


def _said(path: Path) -> str:
    said = path.read_bytes()[-_LAST_WORDS:].decode(errors="replace").strip()
    return said.rpartition("\n")[2] or "it left no message"


@contextlib.asynccontextmanager
async def _child(promise: Promise, size: Size, stand: Path, stderr: int) -> AsyncIterator[Process]:
    """The process of one row; it and all that it started are gone afterwards."""
    measure = promise.measure
    assert measure is not None, "a row without a measure has no process"
    arguments = [measure.__module__, measure.__qualname__, size.value, str(stand)]
    process = await anyio.open_process(
        [sys.executable, "-m", "focus.promises.child", *arguments],
        stdin=None,
        stderr=stderr,
        env={**os.environ, **_SET},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            # Before it is reaped, so that its group's number cannot be anyone else's.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await process.aclose()


async def _lines(process: Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    rest = b""
    async for chunk in process.stdout:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
