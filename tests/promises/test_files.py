"""F: the rows are kept, and what they look for they would find."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from focus.errors import StoreError
from focus.promises.base import Row
from focus.promises.disks import WRITES, Write, meet_every_fault
from focus.promises.kills import Harm, cut_everywhere, in_fork, prompt_of
from focus.promises.round_trips import misread
from focus.promises.writers import read_all, write_all
from focus.records.files import Files
from focus.testing.files import FAULTS
from focus.testing.records import GOLDEN


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("row", ["F1", "F2", "F3", "F4", "F5"])
def test_the_promise_is_kept(row: str, kept: Callable[[str], Row]) -> None:
    kept(row)


def test_a_stored_prompt_has_exactly_the_size_asked_for(tmp_path: Path) -> None:
    assert prompt_of(tmp_path, size=2_048).stat().st_size == 2_048


def test_a_changed_record_and_an_unreported_loss_are_found(tmp_path: Path) -> None:
    path = prompt_of(tmp_path, size=2_048)
    harm, cuts = Harm(), cut_everywhere(path, Harm())
    for _ in cuts:
        pass
    for _ in cut_everywhere(path, harm):
        assert harm.total == 0
    *lines, last = path.read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    assert len(records) == 1
    path.write_bytes(b"".join(lines))
    with pytest.raises(StoreError):
        next(cut_everywhere(path, harm))
    path.write_bytes(last + b"".join(lines))
    found = Harm()
    sizes = [size for size in cut_everywhere(path, found) if size == 0]
    assert sizes == [0]
    assert found.total == 0, "order within a file is no promise"


def test_a_killed_process_says_so() -> None:
    assert in_fork(lambda: None) == 0
    assert in_fork(lambda: Path("/nowhere/at/all").read_text()) == 1


def losing(place: Path, files: Files) -> None:
    """Believes that a short write was a whole one, and hides errors."""
    try:
        descriptor = files.create(place / "a")
        try:
            files.write(descriptor, memoryview(b"data" * 99))
        finally:
            files.close(descriptor)
    except OSError:
        return


def is_whole(place: Path) -> bool:
    return (place / "a").exists() and (place / "a").read_bytes() == b"data" * 99


@pytest.mark.parametrize("fault", range(len(FAULTS)), ids=lambda index: FAULTS[index].name)
def test_a_writer_that_hides_faults_is_found_out(fault: int, tmp_path: Path) -> None:
    counts = Counter(meet_every_fault(Write("careless", losing, is_whole), fault, tmp_path))
    assert counts["points"] == 3
    assert counts["refused"] == 0
    assert counts["silent"] >= 1


def test_every_write_meets_every_kind_of_fault(tmp_path: Path) -> None:
    points = Counter(
        {
            write.name: Counter(meet_every_fault(write, 0, tmp_path / write.name))["points"]
            for write in WRITES
        }
    )
    assert min(points.values()) >= 4, points


def test_lost_doubled_and_changed_records_of_many_writers_are_told_apart(tmp_path: Path) -> None:
    for writer in (0, 1):
        write_all(tmp_path, writer, 9)
    assert Counter(read_all(tmp_path, 0, 9)) == {"good": 9}
    assert Counter(read_all(tmp_path, 0, 10)) == {"good": 9, "missing": 1}
    mine = sorted(tmp_path.glob("*attempt-000*.jsonl"))
    mine[0].unlink()
    text = mine[1].read_bytes()
    mine[1].write_bytes(text.replace(b"0/1", b"0/7"))
    mine[2].write_bytes(text + text)
    counts = Counter(read_all(tmp_path, 0, 9))
    assert counts["good"] == 6
    assert counts["missing"] == 2
    assert counts["bad"] >= 2


def test_a_changed_golden_file_is_found(tmp_path: Path) -> None:
    assert all(is_right for _, is_right in misread(GOLDEN, tmp_path / "a"))
    changed = tmp_path / "golden"
    shutil.copytree(GOLDEN, changed)
    path = changed / "critic-1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"count":2', b'"count":3'))
    wrong = [name for name, is_right in misread(changed, tmp_path / "b") if not is_right]
    assert wrong == ["critic"]
