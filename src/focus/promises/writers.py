"""F3: many processes write one directory."""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from focus.promises.base import Measured, Stand
from focus.promises.kills import forked
from focus.records import CriticRecord, JsonlDirectory, read_critic_records
from focus.testing.records import critic_record

__all__ = ("many_writers", "read_all", "write_all")

_SMALLEST, _LARGEST, _USUAL = 100, 4 * 2**20, 64 * 2**10
_EVERY = 8


def many_writers(stand: Stand) -> Measured:
    """Processes that write one problem's records at once; counts lines that are not theirs.

    Sizes are log-uniform from 100 B to 4 MiB for every eighth record and to 64 KiB for the
    others, so that 32,000 records stay under 2 GiB.
    """
    processes, each = stand.pick(quick=(8, 100), full=(32, 1_000))
    directory = stand.folder / "records"
    children = [forked(partial(write_all, directory, n, each)) for n in range(processes)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    found: Counter[str] = Counter(died=sum(code != 0 for code in codes))
    for number in range(processes):
        found.update(read_all(directory, number, each))
        stand.progress(number + 1, processes)
    size = sum(entry.stat().st_size for entry in os.scandir(directory))
    broken = sum(found[kind] for kind in ("died", "bad", "missing", "doubled"))
    detail = {"processes": processes, "records_each": each, "bytes": size, **dict(found)}
    return Measured(broken, processes * each, detail)


def write_all(directory: Path, writer: int, count: int) -> None:
    """Every record of one process: the same problem, its number as the attempt."""
    sink = JsonlDirectory(directory)
    for record in _records(writer, count):
        sink.write([record])


def read_all(directory: Path, writer: int, count: int) -> Iterator[str]:
    """ "good" for each record that came back; "bad", "missing" or "doubled" for the others."""
    reader = read_critic_records(
        directory, attempts=dict.fromkeys(range(count), writer), on_error="skip"
    )
    seen: Counter[int] = Counter()
    expected = {record.source.identity.round: _digest(record) for record in _records(writer, count)}
    for record in reader:
        number = record.source.identity.round
        seen[number] += 1
        yield "good" if _digest(record) == expected.get(number) else "bad"
    yield from ("bad" for _ in reader.skipped)
    yield from ("missing" for number in expected if not seen[number])
    yield from ("doubled" for times in seen.values() for _ in range(times - 1))


def _records(writer: int, count: int) -> Iterator[CriticRecord]:
    rng = random.Random(writer)
    for number in range(count):
        largest = _LARGEST if number % _EVERY == 0 else _USUAL
        size = int(_SMALLEST * (largest / _SMALLEST) ** rng.random())
        text = f"{writer}/{number}\u2028" + rng.choice("abc\n") * size
        yield critic_record(problem="one", round=number, attempt=writer, text=text)


def _digest(record: CriticRecord) -> str:
    return hashlib.sha256(repr(record).encode()).hexdigest()
