"""R1 to R4, A4: what becomes of expansions, samples and tries under a failing server."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from focus.promises.base import Measured, Size, Stand
from focus.promises.gauntlet import Books, Gauntlet, checked, run
from focus.testing.chaos import FAULTS, Alone, Clean, Fault, Kind, Mix, Pairs, survivable

__all__ = (
    "each_alone",
    "fault_alone",
    "honest_faults",
    "nothing_corrupted",
    "nothing_lost",
    "retried",
    "trained_once",
    "undetectable",
)

_LOST = frozenset({"books", "lost", "doubled"})
_SILENCE_S = 0.3
_PATIENCE_S = 60.0
"""For a reply that comes, however slow the machine; only silence is cut short, and a connection
that was taken by a socket which then refused: nobody reads it."""
_FEW_TOKENS = 24
_MOST_REQUESTS = 1.6


def nothing_lost(stand: Stand) -> Measured:
    """R1: expansions under the mix; how many are lost, doubled or unaccounted for."""
    verdict, books = _mixed(stand)
    delivery = verdict["delivery"]
    broken = sum(verdict["by_invariant"].get(name, 0) for name in _LOST)
    broken += delivery["lost"] + delivery["doubled"] + delivery["unaccounted"]
    detail = {
        **delivery,
        "requests": books.requests,
        "replies_seen": sum(row["sent"] for row in verdict["matrix"].values()),
        "states_left_open": books.opened - books.released,
        "permits_left": books.permits_left,
        "findings": verdict["findings"],
    }
    return Measured(broken + books.permits_left, delivery["started"], detail)


def nothing_corrupted(stand: Stand) -> Measured:
    """R2: samples of the mix, of each fault alone, and of all pairs of faults.

    Replies that no client can tell from true ones are counted apart, under "undetectable".
    """
    verdict, _ = _mixed(stand)
    alone = each_alone(stand.folder / "alone")
    pairs = _pairs(stand, stand.folder / "pairs")
    matrix = _added(verdict["matrix"], alone["matrix"], pairs["matrix"])
    detectable = {name: row for name, row in matrix.items() if row["detectable"]}
    misread = {
        name: row["accepted"]
        for name, row in detectable.items()
        if row["kind"] not in ("clean", "harmless") and row["accepted"]
    }
    corrupted = _broken(verdict) + _broken(alone) + _broken(pairs)
    samples = sum(part["trained"]["samples"] for part in (verdict, alone, pairs))
    detail = {
        "samples": samples,
        "expansions": sum(part["delivery"]["started"] for part in (verdict, alone, pairs)),
        "pairs_met": [pairs["pairs_met"], pairs["pairs"]],
        "corrupted": corrupted,
        "not_refused": misread,
        "matrix": detectable,
        "undetectable": undetectable(stand.folder / "undetectable"),
        "findings": [*verdict["findings"], *alone["findings"], *pairs["findings"]][:20],
    }
    return Measured(corrupted + sum(misread.values()), samples, detail)


def honest_faults(stand: Stand) -> Measured:
    """R3: share of trees complete when 30 % of all tries meet a fault that may pass.

    0 if that takes more than 1.6 times the requests of the same trees without faults. With
    five tries a request fails in 0.3⁵ of all cases, and a tree of twenty in one of twenty.
    """
    trees, attempts = stand.pick(quick=200, full=2_000), 10
    few = partial(Gauntlet, trees=trees, seed=7, tokens=_FEW_TOKENS, deadline_s=30.0)
    books = _collected(few(plan=survivable(7), attempts=attempts), stand.folder / "faults", stand)
    quiet = _collected(few(plan=Clean()), stand.folder / "quiet")
    per_tree = books.requests / books.trees / (quiet.requests / quiet.trees)
    detail = {
        "trees": books.trees,
        "complete": books.complete,
        "attempts": attempts,
        "requests_per_request_needed": round(per_tree, 3),
        "requests_per_tree": round(quiet.requests / quiet.trees, 2),
    }
    if stand.size is Size.FULL:
        five = _collected(few(plan=survivable(7), attempts=5), stand.folder / "five")
        detail["complete_with_5_attempts"] = five.complete
    share = books.complete / books.trees
    return Measured(share if per_tree <= _MOST_REQUESTS else 0.0, books.trees, detail)


def retried(stand: Stand) -> Measured:
    """R4: fault kinds that will repeat, and were tried more often than once (bad body: twice)."""
    stand.folder.joinpath("repeats").mkdir()
    tries = {
        fault.name: _tries(fault, stand.folder / "repeats") for fault in FAULTS if _repeats(fault)
    }
    too_often = {
        name: most
        for name, most in tries.items()
        if most > (2 if _kind(name) is Kind.CORRUPT else 1)
    }
    return Measured(len(too_often), len(tries), {"most_tries": tries})


def trained_once(stand: Stand) -> Measured:
    """A4: sampled ids of the trees of R1, less those trained and those withheld with a reason."""
    verdict, _ = _mixed(stand, quick=300)
    ids = verdict["trained"]
    gap = abs(ids["sampled_ids"] - ids["trained_ids"] - ids["withheld_unvalued"])
    broken = gap + ids["withheld_untold"] + verdict["by_invariant"].get("I10", 0)
    return Measured(broken, ids["sampled_ids"], ids)


def each_alone(folder: Path) -> dict[str, Any]:
    """The verdict on one tree per fault, each at 100 %."""
    folder.mkdir()
    for number, fault in enumerate(fault for fault in FAULTS if fault.is_detectable):
        anyio.run(run, _alone(fault, number), folder)
    return checked(folder)


def undetectable(folder: Path) -> dict[str, Any]:
    """What became of replies that are wrong and look right: the honest gap, by fault."""
    folder.mkdir()
    for number, fault in enumerate(fault for fault in FAULTS if not fault.is_detectable):
        anyio.run(run, _alone(fault, number), folder)
    matrix = checked(folder)["matrix"]
    return {
        name: {"sent": row["sent"], "accepted": row["accepted"]} for name, row in matrix.items()
    }


def _alone(fault: Fault, number: int) -> Gauntlet:
    return Gauntlet(
        plan=Alone(fault),
        trees=1,
        first=number,
        seed=number,
        tokens=_FEW_TOKENS,
        attempts=2,
        deadline_s=_SILENCE_S if fault.is_silent or fault.refuses else _PATIENCE_S,
    )


def _mixed(stand: Stand, *, quick: int = 1_000) -> tuple[dict[str, Any], Books]:
    """One run under the mix of faults, and the outside checker's verdict on it."""
    folder, enough = stand.folder, stand.pick(quick=quick, full=10_000)
    mix = Mix(seed=11)
    chosen = Gauntlet(plan=mix, trees=enough, expansions=enough, seed=11, part_faults=0.002)
    books = _collected(chosen, folder, stand)
    return checked(folder), books


def _pairs(stand: Stand, folder: Path) -> dict[str, Any]:
    """Ordered pairs of faults on consecutive requests; the quick run takes every sixth fault.

    "pairs_met" says how many arrived: the order of arrival is the network's own.
    """
    step = stand.pick(quick=6, full=1)
    faults = [replace(fault, hits=1) for fault in FAULTS if fault.is_detectable]
    plan = Pairs(faults[::step])
    enough = plan.period
    chosen = Gauntlet(plan=plan, trees=enough, expansions=enough, attempts=3, deadline_s=_SILENCE_S)
    _collected(chosen, folder, stand)
    arrived = [line["fault"] for line in _jsonl(folder / "server.jsonl")]
    met = len(set(itertools.pairwise(arrived)))
    return {**checked(folder), "pairs_met": met, "pairs": plan.period}


def _collected(chosen: Gauntlet, folder: Path, stand: Stand | None = None) -> Books:
    folder.mkdir(exist_ok=True)
    progress = None if stand is None else stand.progress
    return anyio.run(partial(run, chosen, folder, progress=progress))


def _broken(verdict: dict[str, Any]) -> int:
    """Findings about samples; those about books are R1's."""
    found: dict[str, int] = verdict["by_invariant"]
    return sum(count for name, count in found.items() if name not in _LOST)


def _added(*matrices: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Matrices of several runs, summed by fault."""
    total: dict[str, dict[str, Any]] = {}
    for matrix in matrices:
        for name, row in matrix.items():
            sums = total.setdefault(name, {**row, "sent": 0, "whole": 0, "accepted": 0})
            for column in ("sent", "whole", "accepted"):
                sums[column] += row[column]
    return dict(sorted(total.items()))


def _repeats(fault: Fault) -> bool:
    return fault.is_detectable and fault.kind in (Kind.DATA, Kind.FATAL, Kind.CORRUPT)


def _kind(name: str) -> Kind:
    return next(fault.kind for fault in FAULTS if fault.name == name)


def fault_alone(fault: Fault, folder: Path) -> None:
    """Collect one tree whose every reply has the fault."""
    _collected(_alone(fault, 0), folder)


def _tries(fault: Fault, folder: Path) -> int:
    """Most tries that one request made, of a tree whose every reply has the fault."""
    place = folder / fault.name
    fault_alone(fault, place)
    names = [
        line["rid"].partition("~")[0].rpartition("/")[0] for line in _jsonl(place / "server.jsonl")
    ]
    return max(names.count(name) for name in set(names))


def _jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
