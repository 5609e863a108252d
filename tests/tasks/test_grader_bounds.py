"""Hostile answers, dying processes, cancellation: nothing hangs, nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from focus.errors import GraderError, LifecycleError
from focus.tasks import Grader
from focus.testing.hostile_answers import HOSTILE, TOWER

pytestmark = pytest.mark.anyio


def children(pid: int) -> tuple[int, ...]:
    """Process ids whose parent is `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(entry) == pid:
            found.append(int(entry.name))
    return tuple(found)


def is_alive(pid: int) -> bool:
    """It exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def address_space(pid: int) -> list[str]:
    """Soft and hard cap."""
    limits = Path(f"/proc/{pid}/limits").read_text().split("\n")
    return next(line for line in limits if line.startswith("Max address space")).split()[3:5]


async def gone(*pids: int) -> None:
    """Wait until the processes have ended; the test's own time limit bounds it."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            await anyio.wait_readable(handle)
        finally:
            os.close(handle)


async def child_of(worker: int) -> int:
    """The child that a worker has started for an answer."""
    while not (found := children(worker)):
        await anyio.lowlevel.checkpoint()
    return found[0]


async def worker_of(grader: Grader, *, other_than: int = 0) -> int:
    """The grader's only worker, once there is one."""
    while not (found := [pid for pid in grader.pids if pid != other_than]):
        await anyio.lowlevel.checkpoint()
    return found[0]


async def test_v2_hostile_answers_are_bounded_and_cost_no_worker():
    async with Grader(workers=2, deadline_s=1.0) as grader:
        verdicts = {}

        async def grade(name: str) -> None:
            verdicts[name] = await grader.verdict(HOSTILE[name], "2")

        async with anyio.create_task_group() as group:
            for name in HOSTILE:
                group.start_soon(grade, name)
        assert {name: v.score for name, v in verdicts.items()} == dict.fromkeys(HOSTILE, 0.0)
        assert verdicts["power tower"].unverifiable
        assert verdicts["power tower"].reason == "longer than 1 s"
        assert [await grader.grade(r"\boxed{4}", "4") for _ in range(4)] == [1.0] * 4
        assert grader.counts.started == 2


async def test_b55_twenty_towers_take_no_worker_away():
    async with Grader(workers=2, deadline_s=0.5) as grader:
        await grader.check("2")
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(grader.grade, TOWER, "2")
        assert grader.counts.unverifiable == 20
        assert await grader.grade(r"\boxed{2}", "2") == 1.0
        assert grader.counts.started <= 2
        assert not any(children(pid) for pid in grader.pids)


@pytest.mark.parametrize("digits", [7945, 2 * 10**6])
async def test_b56_numbers_past_the_text_limit_are_wrong_and_nothing_more(warm, digits):
    assert await warm.grade(r"\boxed{" + "9" * digits + "}", "2") == 0.0


async def test_v2_the_memory_cap_is_real():
    async with Grader(memory_mb=300) as grader:
        assert await grader.grade(r"\boxed{4}", "4") == 1.0
        assert address_space(grader.pids[0]) == [str(300 * 2**20)] * 2


async def test_v2_a_cap_below_the_packages_is_an_error_that_names_it():
    async with Grader(memory_mb=40) as grader:
        with pytest.raises(GraderError, match="40 MB"):
            await grader.grade(r"\boxed{4}", "4")


async def test_b44_a_worker_killed_while_grading_is_replaced_once(short):
    async with anyio.create_task_group() as group:
        group.start_soon(short.grade, TOWER, "2")
        worker = await worker_of(short)
        orphan = await child_of(worker)
        os.kill(worker, signal.SIGKILL)
    assert short.counts.started == 2
    assert short.counts.unverifiable == 1
    await gone(orphan)


async def test_b44_a_worker_killed_twice_is_an_error_and_not_a_zero():
    async with Grader(deadline_s=60.0) as grader:

        async def grade() -> None:
            with pytest.raises(GraderError, match="2 times in a row"):
                await grader.grade(TOWER, "2")

        async with anyio.create_task_group() as group:
            group.start_soon(grade)
            first = await worker_of(grader)
            os.kill(first, signal.SIGKILL)
            os.kill(await worker_of(grader, other_than=first), signal.SIGKILL)
        assert grader.counts.graded == 0
        assert await grader.grade(r"\boxed{4}", "4") == 1.0


async def test_b44_an_idle_worker_that_died_is_replaced_unseen(short):
    os.kill(short.pids[0], signal.SIGKILL)
    assert await short.grade(r"\boxed{4}", "4") == 1.0
    assert short.counts.started == 2


async def test_r5_a_frozen_worker_is_an_error_within_the_deadline(short):
    os.kill(short.pids[0], signal.SIGSTOP)
    with pytest.raises(GraderError, match="stuck"):
        await short.grade(r"\boxed{4}", "4")
    assert await short.grade(r"\boxed{4}", "4") == 1.0


async def test_r5_a_frozen_worker_does_not_block_a_large_request(short):
    os.kill(short.pids[0], signal.SIGSTOP)
    with pytest.raises(GraderError, match="stuck"):
        await short.grade("\U0001f600" * 65_536, "4")


async def test_r6_a_cancelled_grade_leaves_no_process():
    async with Grader(deadline_s=60.0) as grader:
        async with anyio.create_task_group() as group:
            group.start_soon(grader.grade, TOWER, "2")
            worker = await worker_of(grader)
            child = await child_of(worker)
            group.cancel_scope.cancel()
        await gone(child, worker)
        assert await grader.grade(r"\boxed{4}", "4") == 1.0
        mine = grader.pids
    assert not any(is_alive(pid) for pid in mine)


async def test_r6_a_cancelled_wait_for_a_worker_starts_nothing():
    async with Grader(deadline_s=60.0) as grader, anyio.create_task_group() as group:
        group.start_soon(grader.grade, TOWER, "2")
        await worker_of(grader)
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(grader.grade, r"\boxed{4}", "4")
            waiting.cancel_scope.cancel()
        assert grader.counts.started == 1
        group.cancel_scope.cancel()


async def test_closing_while_grading_ends_the_grade_and_the_process():
    grader = Grader(deadline_s=60.0)

    async def grade() -> None:
        with pytest.raises(LifecycleError, match="closed"):
            await grader.grade(TOWER, "2")

    async with anyio.create_task_group() as group:
        group.start_soon(grade)
        worker = await worker_of(grader)
        child = await child_of(worker)
        await grader.aclose()
    assert not is_alive(worker)
    await gone(child)


def test_b46_three_event_loops_share_one_grader():
    grader = Grader()
    for _ in range(3):
        assert anyio.run(grader.grade, r"\boxed{4}", "4") == 1.0
    assert grader.counts == type(grader.counts)(graded=3, right=3, started=1)
    anyio.run(grader.aclose)


def test_b53_loops_in_several_threads_share_one_grader():
    grader = Grader(workers=2)
    verdicts: list[float] = []

    def loop() -> None:
        verdicts.append(anyio.run(grader.grade, r"\boxed{4}", "4"))

    threads = [threading.Thread(target=loop) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [1.0] * 6
    assert grader.counts.started <= 2
    anyio.run(grader.aclose)


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_a_grader_left_open_at_exit_is_harmless():
    done = run_script(r"""
        import anyio
        from focus.tasks import Grader
        grader = Grader()
        assert anyio.run(grader.grade, r"\boxed{4}", "4") == 1.0
        print(*grader.pids)
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert not is_alive(int(done.stdout))


async def test_a_client_that_is_killed_leaves_no_process_past_the_deadline():
    script = rf"""
        import anyio
        from focus.tasks import Grader
        grader = Grader(deadline_s=1.0)
        grader.check_now("2")
        print(*grader.pids, flush=True)
        anyio.run(grader.grade, r"{TOWER}", "2")
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    async with await anyio.open_process(command) as client:
        assert client.stdout is not None
        worker = int(await client.stdout.receive())
        child = await child_of(worker)
        client.kill()
    await gone(worker, child)


def test_a_forked_client_uses_workers_of_its_own():
    done = run_script(r"""
        import os
        from focus.tasks import Grader
        grader = Grader()
        grader.check_now("4")
        mine = grader.pids
        child = os.fork()
        grader.check_now("5")
        if child == 0:
            assert not set(mine) & set(grader.pids)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        grader.check_now("6")
        assert grader.pids == mine
    """)
    assert (done.returncode, done.stderr) == (0, "")
