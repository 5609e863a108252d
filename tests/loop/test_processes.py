"""Children that another supervisor can find."""

import signal
from pathlib import Path

from focus.loop.processes import end_all, find_marked, start


def test_a_child_can_be_found_once_it_is_started(tmp_path: Path) -> None:
    marks = [f"{tmp_path}#{number}" for number in range(20)]
    started = []
    try:
        for mark in marks:
            child = start(
                ["sleep", "600"],
                mark=mark,
                log=tmp_path / "log",
                folder=tmp_path,
                environment={},
            )
            started.append(child)
            found = find_marked(mark)
            assert found is not None
            assert found.pid == child.pid
    finally:
        end_all(started, patience_s=5.0)
    assert not any(map(find_marked, marks))


def test_a_child_that_ends_at_once_holds_nobody_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start(["true"], mark="m", log=log, folder=tmp_path, environment={})
    assert child.own is not None
    assert child.own.wait(timeout=60) == 0
    child.signal_group(signal.SIGTERM)
    assert child.group_is_empty()
