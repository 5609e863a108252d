"""R9: real processes, stopped by real signals at random times."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from focus._processes import stat_of
from focus.errors import FocusError
from focus.promises.base import Measured, Stand
from focus.promises.signalled import CHILD

__all__ = ("Stopped", "signals_end_it", "stopped_by")

_LONGEST_S = 0.4
_PATIENCE_S = 60.0
_STAYS_S = 10.0
_WAYS: tuple[tuple[int, ...], ...] = (
    (signal.SIGINT,),
    (signal.SIGTERM,),
    (signal.SIGINT, signal.SIGINT),
)


@dataclass(frozen=True)
class Stopped:
    """How a process ended.

    Attributes:
        seconds: from the first signal to its end.
        by: the first signal.
        code: its exit code.
        orphans: processes of its that outlived it.
        broken_lines: lines on disk that are no whole record.
        left_open: environment states that were not released.
    """

    seconds: float
    by: int
    code: int
    orphans: int
    broken_lines: int
    left_open: int

    @property
    def is_clean(self) -> bool:
        says_so = self.code == 128 + self.by
        return says_so and not (self.orphans or self.broken_lines or self.left_open)


def signals_end_it(stand: Stand) -> Measured:
    """Worst time until exit; one that is not clean counts as never ended."""
    times = stand.pick(quick=10, full=200)
    rng = random.Random(5)
    ended = []
    for number in range(times):
        folder = stand.folder / str(number)
        folder.mkdir()
        ended.append(stopped_by(_WAYS[number % 3], folder, after_s=rng.uniform(0, _LONGEST_S)))
        stand.progress(number, times)
    worst = max(one.seconds for one in ended)
    unclean = [one for one in ended if not one.is_clean]
    codes = {str(code): sum(one.code == code for one in ended) for code in {e.code for e in ended}}
    detail = {
        "worst_s": round(worst, 3),
        "median_s": round(sorted(one.seconds for one in ended)[times // 2], 3),
        "orphans": sum(one.orphans for one in ended),
        "broken_lines": sum(one.broken_lines for one in ended),
        "states_left_open": sum(one.left_open for one in ended),
        "exit_codes": codes,
    }
    return Measured(worst if not unclean else _PATIENCE_S, times, detail)


def stopped_by(signals: Sequence[int], folder: Path, *, after_s: float) -> Stopped:
    """Start the program, send the signals after a while, and see what is left of it."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            return _stop(process, signals, folder, after_s)
        finally:
            process.kill()


def _stop(
    process: subprocess.Popen[str], signals: Sequence[int], folder: Path, after_s: float
) -> Stopped:
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise FocusError(f"the program ended with {process.wait()} before any signal came")
    time.sleep(after_s)
    children = _children(process.pid)
    started = time.monotonic()
    for number in signals:
        process.send_signal(number)
    code = process.wait(timeout=_PATIENCE_S)
    seconds = time.monotonic() - started
    return Stopped(
        seconds=seconds,
        by=signals[0],
        code=code,
        orphans=sum(_outlives(child) for child in children),
        broken_lines=sum(map(_broken_lines, folder.glob("records/*.jsonl"))),
        left_open=_left_open(folder / "books.json"),
    )


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    threads = path.parent.parent.glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


def _outlives(pid: int) -> bool:
    """Whether it stays; its parent's end is what ends it."""
    until = time.monotonic() + _STAYS_S
    while time.monotonic() < until:
        fields = stat_of(pid)
        if fields is None or fields[0] == "Z":
            return False
        time.sleep(0.01)
    return True


def _broken_lines(path: Path) -> int:
    *lines, rest = path.read_bytes().split(b"\n")
    return bool(rest) + sum(not _is_record(line) for line in lines)


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _left_open(path: Path) -> int:
    """States opened and not released; 1 if the program did not come to say."""
    try:
        books = json.loads(path.read_text())
    except (OSError, ValueError):
        return 1
    left: int = books["opened"] - books["released"]
    return left
