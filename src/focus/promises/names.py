"""S1: ids that would like to be paths."""

from __future__ import annotations

import os
import random
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from focus.errors import RecordError, StoreError
from focus.problem import Problem
from focus.promises.base import Measured, Stand
from focus.promises.round_trips import random_text
from focus.records import JsonlDirectory, read_critic_records
from focus.records.jsonl import PromptFile
from focus.testing.records import critic_record
from focus.training.collection_folder import CollectionFolder

__all__ = ("chosen_paths", "hostile_ids", "stored_ids")

_CORES = (
    "..",
    ".",
    "",
    "a",
    "A",
    "\xe9",
    "e\u0301",
    "\ufb01",
    "fi",
    "con",
    "NUL",
    "COM1.txt",
    "x\0y",
    "\u202etxt.exe",
    "~root",
    "$HOME",
    "%2e%2e",
    "-rf",
    "a b",
    "a\nb",
    "manifest.json",
    "round-000000.accepted.json",
    "7",
)
_LEADS = (
    "",
    "/",
    "../",
    "../../",
    "/etc/",
    "\\",
    "C:\\",
    "//host/",
    "./",
    "a/../../",
    ".focus-tmp/",
)
_TAILS = ("", "/", "/..", "\0", ".jsonl", " ", ".", "\u2028", "::$DATA")
_FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
_PLANTED_ONE_IN = 50
_LONG = 4_096


def chosen_paths(stand: Stand) -> Measured:
    """Store a record under each id; counts files elsewhere, shared names, changed files.

    For one id in fifty a symlink already stands where its file will go: the write must be
    refused, and the file behind the link stay as it was.
    """
    count = stand.pick(quick=1_000, full=10_000)
    found = stored_ids(list(hostile_ids(count)), stand.folder)
    stand.progress(count, count)
    harm = sum(found[kind] for kind in ("escapes", "collisions", "overwrites", "lost"))
    return Measured(harm, count, dict(found))


def hostile_ids(count: int) -> Iterator[int | str]:
    """Different ids: paths, devices, marks, twins by case or normal form, very long ones."""
    rng = random.Random(0)
    seen: set[tuple[type, int | str]] = set()
    while len(seen) < count:
        candidate = _hostile_id(rng)
        if (type(candidate), candidate) not in seen:
            seen.add((type(candidate), candidate))
            yield candidate


def _hostile_id(rng: random.Random) -> int | str:
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice([rng.randrange(-9, 10), rng.randrange(-(10**40), 10**40)])
    text = rng.choice(_LEADS) + rng.choice(_CORES) + rng.choice(_TAILS)
    if kind < 4:
        text += random_text(rng)
    if kind == 4:
        text += rng.choice("x/.\xe9") * rng.choice([255, 256, _LONG])
    if kind == 5:
        text = unicodedata.normalize(
            rng.choice(["NFC", "NFD", "NFKC", "NFKD"]), text + "\xe9\ufb01"
        )
    if kind == 6:
        text = rng.choice([text.upper(), text.lower(), text.swapcase()]) + str(rng.randrange(99))
    return text


def stored_ids(ids: list[int | str], folder: Path) -> Counter[str]:
    """What happened when each of the ids was stored."""
    inside, outside = folder / "deep" / "er" / "records", folder / "deep" / "outside"
    inside.mkdir(parents=True)
    outside.write_bytes(b"do not touch")
    sink = JsonlDirectory(inside)
    names: Counter[str] = Counter()
    stored, counts = set(), Counter[str]()
    for number, problem in enumerate(ids):
        record = critic_record(problem=problem)
        name = PromptFile.of(record.source).name
        names[_folded(name)] += 1
        names["row " + _folded(CollectionFolder.name_of(Problem(id=problem, prompt="p")))] += 1
        is_planted = number % _PLANTED_ONE_IN == 0
        if is_planted:
            (inside / name).symlink_to(outside)
        try:
            sink.write([record])
        except (RecordError, StoreError):
            counts["refused"] += 1
            if is_planted:
                (inside / name).unlink()
        else:
            stored.add((type(problem), problem))
            counts["overwrites"] += is_planted
    found = {(type(r.source.problem), r.source.problem) for r in read_critic_records(inside)}
    counts["stored"] = len(found)
    counts["lost"] = len(stored ^ found)
    counts["collisions"] = sum(times - 1 for times in names.values())
    counts["overwrites"] += outside.read_bytes() != b"do not touch"
    counts["escapes"] = _elsewhere(folder, inside) - 1
    return counts


def _folded(name: str) -> str:
    """How the least careful file system would see a name."""
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ")


def _elsewhere(folder: Path, inside: Path) -> int:
    """Files under `folder` that do not lie directly in `inside`."""
    return sum(len(files) for place, _, files in os.walk(folder) if Path(place) != inside)
