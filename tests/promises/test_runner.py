"""A row is measured in a process of its own; whatever it does, the report goes on."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from focus.errors import ConfigError, StoreError
from focus.promises.base import Limits, Measured, Promise, Row, Size, Stand
from focus.promises.report import broken, report
from focus.promises.runner import measured_row


def fine(stand: Stand) -> Measured:
    print("a line that is no report")
    (stand.folder / "file").write_text("x")
    for done in range(stand.pick(quick=3, full=30)):
        stand.progress(done, 3)
    return Measured(0, 3, {"where": str(stand.folder), "pid": os.getpid()})


def misses(stand: Stand) -> Measured:
    return Measured(2, 100)


def raises(stand: Stand) -> Measured:
    raise StoreError("/disk: cannot write it: No space left on device.")


def dies(stand: Stand) -> Measured:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def waits(stand: Stand) -> Measured:
    signal.pause()
    raise AssertionError


def hangs(stand: Stand) -> Measured:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    Path(os.environ["FOCUS_TEST_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
    stand.progress(1, 2)
    child.wait()
    raise AssertionError


def a_promise(measure: Callable[[Stand], Measured] | None, *, limit_s: float = 60.0) -> Promise:
    limits = Limits(quick_s=limit_s)
    return Promise(
        id="X1", promise="nothing breaks", target=0, unit="x", measure=measure, limits=limits
    )


def row_of(promise: Promise) -> Row:
    return anyio.run(measured_row, promise, Size.QUICK)


def test_a_row_has_a_folder_and_a_process_of_its_own() -> None:
    row = row_of(a_promise(fine))
    assert row.met is True
    assert row.measured is not None
    assert row.measured.detail["pid"] != os.getpid()
    assert not Path(row.measured.detail["where"]).exists()
    assert row.to_dict() == {
        "id": "X1",
        "promise": "nothing breaks",
        "figure": 0,
        "target": 0,
        "better": "lower",
        "trials": 3,
        "bound": 1.0,
        "met": True,
        "measured_on": row.measured_on,
    }


def test_a_missed_target_is_not_met_and_has_no_bound() -> None:
    row = row_of(a_promise(misses))
    assert (row.met, row.bound) == (False, None)


@pytest.mark.parametrize(
    ("measure", "said"),
    [(raises, "StoreError: /disk: cannot write it"), (dies, "ended with -9")],
)
def test_a_row_that_breaks_is_not_met(measure: Callable[[Stand], Measured], said: str) -> None:
    row = row_of(a_promise(measure))
    assert row.met is False
    assert said in row.error
    assert row.to_dict()["figure"] is None


def test_a_row_that_takes_too_long_is_not_met() -> None:
    row = row_of(a_promise(waits, limit_s=0.1))
    assert (row.met, row.error) == (False, "still measuring after 0.1 s")


def test_a_report_that_is_stopped_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOCUS_TEST_PIDS", str(tmp_path / "pids"))

    async def stop_at_the_first_sign_of_life() -> None:
        with anyio.CancelScope() as scope:
            await measured_row(
                a_promise(hangs), Size.QUICK, progress=lambda done, of: scope.cancel()
            )
        assert scope.cancelled_caught

    anyio.run(stop_at_the_first_sign_of_life)
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        assert is_gone(pid)


def is_gone(pid: int) -> bool:
    """Ended; whoever inherited it may not have reaped it yet."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10.0)[0])
    finally:
        os.close(descriptor)


def test_what_nothing_measures_is_not_promised() -> None:
    row = row_of(a_promise(None))
    assert (row.met, row.bound, row.measured) == (None, None, None)
    assert "not promised" in row.to_dict()["promise"]


def test_the_report_goes_on_after_a_broken_row() -> None:
    seen: list[Row] = []

    async def all_of_them() -> list[Row]:
        rows = [a_promise(measure) for measure in (raises, fine)]
        return await report(rows, Size.QUICK, ended=seen.append)

    rows = anyio.run(all_of_them)
    assert [row.met for row in rows] == [False, True]
    assert seen == rows
    assert broken(rows) == rows[:1]


def test_no_trial_is_no_measurement() -> None:
    with pytest.raises(ConfigError, match="nothing was tried"):
        Measured(0, 0)
    with pytest.raises(ConfigError, match="finite"):
        Measured(float("nan"), 1)
