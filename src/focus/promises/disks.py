"""F2: the n-th file call fails, for all n, until a run meets no fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from focus.errors import FocusError, StoreError
from focus.integrations.slime import make_generate
from focus.promises.base import Measured, Stand
from focus.promises.hosts import HostSample, Walker, host_args
from focus.records import JsonlDirectory, load_stored_tree, read_critic_records, save_tree
from focus.records.files import Files, write_whole
from focus.records.jsonl import accepted_attempts
from focus.testing.files import FAULTS, FailingFiles
from focus.testing.records import golden_tree, three
from focus.training.rundir import RunDirectory

__all__ = ("WRITES", "Write", "failing_disk", "meet_every_fault")


@dataclass(frozen=True)
class Write:
    """One thing that FOCUS stores.

    Attributes:
        name: for reports.
        store: stores it in a folder through these file calls.
        is_stored: whether a reader finds all of it; raises if it finds a part.
    """

    name: str
    store: Callable[[Path, Files], None]
    is_stored: Callable[[Path], bool]


def failing_disk(stand: Stand) -> Measured:
    """Every write, every fault, every call; counts what was lost without an error."""
    counts: Counter[str] = Counter()
    for number, write in enumerate(WRITES):
        for fault in range(len(FAULTS)):
            counts.update(meet_every_fault(write, fault, stand.folder / f"{number}-{fault}"))
        stand.progress(number + 1, len(WRITES))
    return Measured(
        counts["silent"],
        counts["points"],
        {"fault_points": counts["points"], "refused": counts["refused"], "silent": counts["silent"]}
        | {"actor_samples_without_critic_records": counts["unpaired"]},
    )


def meet_every_fault(write: Write, fault: int, folder: Path) -> Iterator[str]:
    """Fail the 0th, 1st, … call until none is left; yields what each run was.

    "points": a fault was met. "refused": an error told of it, and the same call then
    worked. "silent": all went well by its own account, and a reader does not find it, or
    the error was none of ours, or a part was left for a reader to find. "unpaired": silent,
    in the hook that must store critic records before it gives samples away.
    """
    n = 0
    while True:
        place = folder / str(n)
        place.mkdir(parents=True)
        files = FailingFiles(FAULTS[fault], at=n)
        yield from _outcome(write, place, files)
        if not files.met:
            return
        yield "points"
        n += 1


def _outcome(write: Write, place: Path, files: FailingFiles) -> Iterator[str]:
    try:
        write.store(place, files)
    except StoreError:
        yield "refused"
        write.store(place, Files())
    except FocusError:
        yield "silent"
    if files.left_open or not _stored(write, place):
        yield "silent"
        if write.name == "samples":
            yield "unpaired"


def _stored(write: Write, place: Path) -> bool:
    try:
        return write.is_stored(place)
    except FocusError:
        return False


def _file(*, overwrite: bool, fsync: bool) -> Write:
    def store(place: Path, files: Files) -> None:
        try:
            write_whole(place / "a", b"data" * 99, overwrite=overwrite, fsync=fsync, files=files)
        except FileExistsError:
            return  # an earlier try gave it its name and could not make that durable

    name = f"file, {'replaced' if overwrite else 'new'}{', synced' if fsync else ''}"
    return Write(name, store, lambda place: (place / "a").read_bytes() == b"data" * 99)


def _sink(*, fsync: bool) -> Write:
    def store(place: Path, files: Files) -> None:
        sink = JsonlDirectory(place / "records", fsync=fsync, files=files)
        if not list((place / "records").glob("*.jsonl")):
            sink.write(three())
        sink.accept(round=0, attempt=0)

    def is_stored(place: Path) -> bool:
        marks = accepted_attempts(place / "records")
        return list(read_critic_records(place / "records")) == three() and marks == {0: 0}

    return Write(f"critic records{', synced' if fsync else ''}", store, is_stored)


def _roll_back() -> Write:
    def store(place: Path, files: Files) -> None:
        if not (place / "records").exists():
            sink = JsonlDirectory(place / "records")
            sink.write(three())
            sink.accept(round=0, attempt=0)
        JsonlDirectory(place / "records", files=files).roll_back(after=-1)

    def is_stored(place: Path) -> bool:
        return accepted_attempts(place / "records") == {0: None}

    return Write("withdrawn round", store, is_stored)


def _tree() -> Write:
    def store(place: Path, files: Files) -> None:
        save_tree(golden_tree(), place / "trees" / "tree.json", files=files)

    def is_stored(place: Path) -> bool:
        return len(load_stored_tree(place / "trees" / "tree.json").tree) == len(golden_tree())

    return Write("tree", store, is_stored)


def _checkpoint() -> Write:
    def store(place: Path, files: Files) -> None:
        run = RunDirectory(place, files=files)
        run.write_folder(place / "checkpoint", _fill)

    def is_stored(place: Path) -> bool:
        state: Any = json.loads((place / "checkpoint" / "inner" / "state.json").read_text())
        return bool(state == {"round": 3})

    return Write("checkpoint", store, is_stored)


def _fill(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "state.json").write_text('{"round": 3}')


def _samples() -> Write:
    """Slime's hook gives its samples away only when their critic records are on disk."""

    def store(place: Path, files: Files) -> None:
        sink = JsonlDirectory(place / "records", files=files)
        samples = anyio.run(_hooked, sink)
        (place / "given").write_text(str(len(samples)))

    def is_stored(place: Path) -> bool:
        records = list(read_critic_records(place / "records"))
        return int((place / "given").read_text()) > 0 and bool(records)

    return Write("samples", store, is_stored)


async def _hooked(sink: JsonlDirectory) -> list[Any]:
    hook = make_generate(Walker(), profile="token_chunk", critic_sink=sink)
    samples: list[Any] = await hook(host_args(), HostSample(index=0, prompt="Walk."), {})
    return samples


WRITES: tuple[Write, ...] = (
    _file(overwrite=False, fsync=False),
    _file(overwrite=False, fsync=True),
    _file(overwrite=True, fsync=False),
    _file(overwrite=True, fsync=True),
    _sink(fsync=False),
    _sink(fsync=True),
    _roll_back(),
    _tree(),
    _checkpoint(),
    _samples(),
)
