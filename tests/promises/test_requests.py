"""R5 to R9, A1, A6, C2, D1: the rows are kept, and what they look for they would find."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from focus.credit import DirectBranchTd
from focus.errors import RecordError
from focus.promises.base import Row, Size, Stand
from focus.promises.diagnosing import CAUSES, PLACE, untold
from focus.promises.hangs import SILENT
from focus.promises.sampled import MUTANTS
from focus.promises.signals import Stopped
from focus.promises.soak import Sighting, growth_mb_per_hour, soak
from focus.records import actor_records, check_export
from focus.testing.chaos import FAULTS, Kind, fault_named
from focus.testing.stepping import CANCELS, Cancel, Stepper
from focus.testing.trees import build_tree, random_sketch


@pytest.mark.timeout(3700)
@pytest.mark.parametrize("row", ["R5", "R6", "R7", "R8", "R9", "A1", "A6"])
def test_the_promise_is_kept(row: str, kept: Callable[[str], Row]) -> None:
    kept(row)


@pytest.mark.full
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("row", ["C2", "D1"])
def test_the_promise_that_takes_long_is_kept(row: str, kept: Callable[[str], Row]) -> None:
    kept(row)


async def careless() -> None:
    """Leaves a task behind when it is cancelled."""
    helper = asyncio.ensure_future(asyncio.Event().wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    helper.cancel()


async def deaf() -> None:
    """Takes a cancellation for something else."""
    for _ in range(4):
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise RuntimeError("not me") from None


@pytest.mark.parametrize("cancel", CANCELS.values(), ids=CANCELS)
def test_a_task_left_behind_and_a_swallowed_cancellation_are_seen(cancel: Cancel) -> None:
    seen: Counter[str] = Counter()
    for job in (careless, deaf):
        for moment in (1, 2, 3):
            stepper = Stepper(job)
            error = stepper.run_cancelled(moment, cancel)
            seen["errors"] += error is not None
            seen["tasks"] += len(stepper.leftovers())
            for task in asyncio.all_tasks(stepper.loop):
                task.cancel()
            stepper.tick()
            stepper.close()
    assert seen["errors"] > 0
    assert seen["tasks"] > 0


def test_silence_is_what_ends_at_the_client_alone() -> None:
    assert {fault.name for fault in FAULTS if fault.is_silent} == set(SILENT)


@pytest.mark.parametrize("name", MUTANTS)
def test_each_way_to_spoil_a_sample_is_refused(name: str) -> None:
    rng = random.Random(name)
    tree = build_tree(random_sketch(rng, nodes=30))
    credit = DirectBranchTd().estimate(tree)
    records = actor_records(tree, credit)
    for place, record in enumerate(records):
        spoiled = (*records[:place], MUTANTS[name](record), *records[place + 1 :])
        with pytest.raises(RecordError):
            check_export(spoiled, tree, credit)


def test_a_process_that_is_not_clean_is_no_quick_end() -> None:
    clean = Stopped(seconds=0.1, by=15, code=143, orphans=0, broken_lines=0, left_open=0)
    assert clean.is_clean
    for change in ({"code": 130}, {"orphans": 1}, {"broken_lines": 1}, {"left_open": 1}):
        assert not replace(clean, **change).is_clean


def test_a_short_soak_ends_with_no_more_than_it_began_with(tmp_path: Path) -> None:
    """Fewer are none of its own: what an earlier test left open goes meanwhile."""
    before, *seen, after = anyio.run(soak, 2.0, Stand(size=Size.QUICK, folder=tmp_path))
    assert after.trees > 0
    assert seen
    for name in ("descriptors", "tasks", "threads"):
        assert getattr(after, name) <= getattr(before, name), name


def test_growth_is_the_slope_of_resident_memory() -> None:
    noisy = [Sighting(60.0 * i, 50 + i / 60 + (i % 2) / 100, 9, 1, 1, i) for i in range(120)]
    assert abs(growth_mb_per_hour(noisy) - 1.0) < 0.05


def test_every_kind_of_fault_has_a_cause_to_be_named() -> None:
    kinds = [f for f in FAULTS if f.is_detectable and f.kind is not Kind.HARMLESS]
    unnamed = {fault.name for fault in kinds} - CAUSES.keys()
    assert all(name.startswith("status_") for name in unnamed)
    assert CAUSES.keys() <= {fault.name for fault in kinds}


def test_an_error_that_hides_cause_or_place_is_found() -> None:
    fault = fault_named("status_404")
    place = "[request=r, attempts=1, elapsed_s=0.1, problem='p', node=0]"
    assert untold(fault, f"HTTP 404 {place}") == []
    assert untold(fault, f"no luck {place}") == ["cause"]
    assert untold(fault, "HTTP 404") == list(PLACE)
