"""F1: a file cut at every byte, a writer that dies after the k-th, a writer killed at random.

Three ways to stop in the middle. The cut is what a reader may find; the shim hands the
system exactly k bytes and then kills its process; the third is a real process that writes
prompt after prompt until SIGKILL meets it somewhere.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from focus.promises.base import Measured, Stand
from focus.records import CriticRecord, JsonlDirectory, read_critic_records
from focus.testing.files import KilledFiles
from focus.testing.records import critic_record, three

__all__ = (
    "Harm",
    "cut_everywhere",
    "every_byte",
    "forked",
    "in_fork",
    "kill_writers",
    "kill_writes",
    "prompt_of",
)

_NUMBER = struct.Struct("<q")
_LONGEST_S = 0.02


@dataclass
class Harm:
    """What was found broken.

    Attributes:
        damaged: records that are not, to the bit, one that was written.
        missing: whole or acknowledged records that a reader does not get.
        unnoticed: cuts that a reader did not report.
    """

    damaged: int = 0
    missing: int = 0
    unnoticed: int = 0

    @property
    def total(self) -> int:
        return self.damaged + self.missing + self.unnoticed


def every_byte(stand: Stand) -> Measured:
    """Cuts, kills by byte and kills at random times; counts every record harmed."""
    cuts = stand.pick(quick=2_048, full=65_536)
    kills = stand.pick(quick=20, full=1_000)
    harm = Harm()
    path = prompt_of(stand.folder / "cut", size=cuts)
    steps = [("cuts", cut_everywhere(path, harm))]
    every = stand.pick(quick=16, full=1)
    steps.append(("shim_kills", kill_writes(stand.folder / "shim", harm, every=every)))
    steps.append(("kills", kill_writers(stand.folder / "killed", kills, harm)))
    counts = {"cuts": 0, "shim_kills": 0, "kills": 0}
    for name, trials in steps:
        for _ in trials:
            counts[name] += 1
            stand.progress(sum(counts.values()), cuts + 1_200 // every + kills)
    detail = {**counts, "file_bytes": path.stat().st_size, **vars(harm)}
    return Measured(harm.total, sum(counts.values()), detail)


def prompt_of(directory: Path, *, size: int) -> Path:
    """A stored prompt whose file has exactly `size` bytes."""
    records = [critic_record(node=node, text=_text(node)) for node in range(max(2, size // 1_024))]
    sink = JsonlDirectory(directory)
    path = sink.write(records)
    assert path is not None, "there are records"
    missing = size - path.stat().st_size
    assert missing >= 0, "a record of this text is shorter than 1 KiB"
    path.unlink()
    # Plain ASCII text: one more character is one more byte.
    last = records[-1]
    records[-1] = critic_record(node=last.node, text=last.context.text + "x" * missing)
    assert sink.write(records) == path
    assert path.stat().st_size == size
    return path


def _text(node: int) -> str:
    return f"node {node} " + 'a "quoted" \\ line\n' * 12


def cut_everywhere(path: Path, harm: Harm) -> Iterator[int]:
    """Cut a stored prompt at every byte, from its end; yields the bytes that are left.

    A record is whole while its newline is there. A reader that skips must give out every
    whole record and nothing else, and must say that something is missing.
    """
    data = path.read_bytes()
    written = list(read_critic_records(path.parent))
    for size in range(len(data), -1, -1):
        os.truncate(path, size)
        reader = read_critic_records(path.parent, on_error="skip")
        found = list(reader)
        whole = data.count(b"\n", 0, size)
        harm.missing += max(0, whole - len(found))
        harm.damaged += sum(a != b for a, b in zip(found, written, strict=False))
        harm.damaged += max(0, len(found) - whole)
        harm.unnoticed += bool(reader.skipped) is (size == len(data))
        yield size
    path.write_bytes(data)


def kill_writes(folder: Path, harm: Harm, *, every: int = 1) -> Iterator[int]:
    """Kill a writer after each `every`-th number of bytes that it hands to the system."""
    folder.mkdir()
    path = JsonlDirectory(folder / "sample").write(three())
    assert path is not None, "there are records"
    total = path.stat().st_size + (folder / "sample" / "manifest.json").stat().st_size
    for most in range(total % every, total + 1, every):
        directory = folder / str(most)

        def write(directory: Path = directory, most: int = most) -> None:
            JsonlDirectory(directory, files=KilledFiles(most=most)).write(three())

        in_fork(write)
        _check(directory, [three()], harm, acknowledged=0)
        yield most


def kill_writers(folder: Path, kills: int, harm: Harm) -> Iterator[int]:
    """Kill a process that writes prompt after prompt, at a random time, again and again."""
    folder.mkdir()
    rng = random.Random(0)
    for number in range(kills):
        directory = folder / str(number)
        acknowledged = _killed_writer(directory, after_s=rng.uniform(0, _LONGEST_S))
        prompts = [three(problem) for problem in range(acknowledged + 1)]
        _check(directory, prompts, harm, acknowledged=acknowledged)
        yield number


def _killed_writer(directory: Path, *, after_s: float) -> int:
    """How many prompts it had been told are stored when it was killed."""
    read_end, write_end = os.pipe()

    def write() -> None:
        os.close(read_end)
        sink = JsonlDirectory(directory)
        for problem in range(10**6):
            sink.write(three(problem))
            os.write(write_end, _NUMBER.pack(problem))

    pid = forked(write)
    os.close(write_end)
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with os.fdopen(read_end, "rb") as stream:
        return len(stream.read()) // _NUMBER.size


def _check(
    directory: Path, prompts: Sequence[list[CriticRecord]], harm: Harm, *, acknowledged: int
) -> None:
    """Readers find whole prompts only, all acknowledged ones, and the next writer goes on."""
    found = _found(directory)
    by_problem = {prompt[0].source.problem: prompt for prompt in prompts}
    harm.damaged += sum(by_problem.get(name) != records for name, records in found.items())
    accepted = {prompt[0].source.problem for prompt in prompts[:acknowledged]}
    harm.missing += len(accepted - found.keys())
    sink = JsonlDirectory(directory)
    for name, records in by_problem.items():
        if name not in found:
            sink.write(records)
    harm.missing += _found(directory).keys() != by_problem.keys()


def _found(directory: Path) -> dict[int | str, list[CriticRecord]]:
    found: dict[int | str, list[CriticRecord]] = {}
    if (directory / "manifest.json").exists():
        for record in read_critic_records(directory):
            found.setdefault(record.source.problem, []).append(record)
    return found


def in_fork(work: Callable[[], None]) -> int:
    """Do `work` in a forked process; returns its exit code, negative for a signal."""
    _, status = os.waitpid(forked(work), 0)
    return os.waitstatus_to_exitcode(status)


def forked(work: Callable[[], None]) -> int:
    """Begin `work` in a forked process, which ends with it; returns the process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)
