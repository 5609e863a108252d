"""The reader: whole records of the attempts that count, or an error with file and line."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from focus.errors import ConfigError, SchemaError, StoreError
from focus.records import CriticRecord, JsonlDirectory, SkippedLine, read_critic_records
from focus.testing.records import GOLDEN as GOLDEN_FILES
from focus.testing.records import critic_record, three

from .strategies import critic_records_of_one_prompt

GOLDEN = GOLDEN_FILES / "directory"
SEPARATORS = "\u0085\u2028\u2029\x0b\x1c\n\r\0\ufeff"


def written(sink: JsonlDirectory, records: list[CriticRecord]) -> Path:
    path = sink.write(records)
    assert path is not None
    return path


@given(critic_records_of_one_prompt())
def test_what_goes_in_comes_out(records: list[CriticRecord]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        JsonlDirectory(directory).write(records)
        assert list(read_critic_records(directory)) == records


def test_the_golden_directory_reads_back() -> None:
    assert list(read_critic_records(GOLDEN)) == three("math/7", round=3, attempt=1)


def test_lines_end_at_the_newline_byte_and_nowhere_else(tmp_path: Path) -> None:
    record = critic_record(text=SEPARATORS)
    path = written(JsonlDirectory(tmp_path), [record])
    assert list(read_critic_records(tmp_path)) == [record]
    # A writer that does not escape: the same record, with the separators as they are.
    raw = path.read_bytes()
    for character in "\u0085\u2028\u2029\ufeff":
        raw = raw.replace(f"\\u{ord(character):04x}".encode(), character.encode())
    path.write_bytes(raw)
    assert list(read_critic_records(tmp_path)) == [record]


def test_every_cut_of_a_file_gives_whole_records_or_a_typed_error(tmp_path: Path) -> None:
    records = three()[:2]
    path = written(JsonlDirectory(tmp_path), records)
    data = path.read_bytes()
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(SchemaError, match=path.name):
            list(read_critic_records(tmp_path))
        reader = read_critic_records(tmp_path, on_error="skip")
        whole = data[:cut].count(b"\n")
        assert list(reader) == records[:whole]
        assert reader.skipped


def test_a_damaged_file_gives_out_nothing(tmp_path: Path) -> None:
    path = written(JsonlDirectory(tmp_path), three())
    path.write_bytes(path.read_bytes().replace(b'"line":2', b'"line":x'))
    given_out: list[CriticRecord] = []
    with pytest.raises(SchemaError, match=rf"{path.name}, line 3: not readable JSON"):
        given_out.extend(read_critic_records(tmp_path))
    assert given_out == []


def test_skipping_reports_file_line_and_reason(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path)
    path = written(sink, three(7))
    written(sink, three(8))
    lines = path.read_bytes().split(b"\n")
    lines[1] = b'{"schema": "focus.critic/9", "line": 1, "lines": 3}'
    path.write_bytes(b"\n".join(lines))
    reader = read_critic_records(tmp_path, on_error="skip")
    assert len(list(reader)) == 5
    bad, short = reader.skipped
    assert isinstance(bad, SkippedLine)
    assert (bad.path, bad.line) == (path, 2)
    assert "focus.critic/9" in bad.reason
    assert (short.path, short.line) == (path, 0)
    assert "2 whole records of 3" in short.reason
    assert len(list(reader)) == 5
    assert len(reader.skipped) == 2


def test_a_doubled_line_is_refused(tmp_path: Path) -> None:
    path = written(JsonlDirectory(tmp_path), three())
    first = path.read_bytes().split(b"\n")[0] + b"\n"
    path.write_bytes(path.read_bytes() + first)
    with pytest.raises(SchemaError, match=r"line 4: record 0 of 3, node 0, appears twice"):
        list(read_critic_records(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b'"line":1', b'"line":0', "line 2: record 0 of 3, node 1, appears twice"),
        (b'"node":1', b'"node":0', "line 2: record 1 of 3, node 0, appears twice"),
        (b'"line":2', b'"line":3', "line 3: record 3 of 3, node 2, lies past"),
    ],
)
def test_two_records_of_one_place_are_refused(
    tmp_path: Path, old: bytes, new: bytes, complaint: str
) -> None:
    path = written(JsonlDirectory(tmp_path), three())
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(SchemaError, match=complaint):
        list(read_critic_records(tmp_path))


def test_a_file_under_another_prompts_name_is_refused(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path)
    seven, eight = written(sink, three(7)), written(sink, three(8))
    shutil.copy(seven, eight)
    with pytest.raises(SchemaError, match="problem 7 belongs to another file"):
        list(read_critic_records(tmp_path))


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    written(JsonlDirectory(tmp_path / "a"), three())
    other = [
        dataclasses.replace(
            record,
            source=dataclasses.replace(
                record.source, identity=dataclasses.replace(record.source.identity, run="other")
            ),
        )
        for record in three(8)
    ]
    stray = written(JsonlDirectory(tmp_path / "b"), other)
    shutil.copy(stray, tmp_path / "a" / stray.name)
    with pytest.raises(SchemaError, match="of run 'other', the directory is of 'test'"):
        list(read_critic_records(tmp_path / "a"))


def test_a_name_that_is_not_ours_is_reported(tmp_path: Path) -> None:
    written(JsonlDirectory(tmp_path), three())
    (tmp_path / "extra.jsonl").write_text("{}\n")
    with pytest.raises(SchemaError, match=r"extra\.jsonl"):
        list(read_critic_records(tmp_path))
    reader = read_critic_records(tmp_path, on_error="skip")
    assert list(reader) == three()
    assert [skipped.path.name for skipped in reader.skipped] == ["extra.jsonl"]


def test_temporary_files_and_notes_are_passed_over(tmp_path: Path) -> None:
    written(JsonlDirectory(tmp_path), three())
    (tmp_path / ".123-0.focus-tmp").write_bytes(b'{"half')
    (tmp_path / "README").write_text("notes")
    assert list(read_critic_records(tmp_path)) == three()


@pytest.mark.parametrize("where", ["nowhere", "."])
def test_no_directory_of_records_is_an_error(tmp_path: Path, where: str) -> None:
    with pytest.raises(StoreError, match=r"no directory of FOCUS records"):
        list(read_critic_records(tmp_path / where))


def history(tmp_path: Path) -> JsonlDirectory:
    """Rounds 0 to 5 of attempt 0; the run resumed after round 3 and has collected 4 again."""
    sink = JsonlDirectory(tmp_path)
    for round in range(6):
        written(sink, three(round, round=round))
    written(sink, three(4, round=4, attempt=1))
    return sink


def seen(tmp_path: Path, **options: Any) -> list[tuple[int, int]]:
    records = read_critic_records(tmp_path, **options)
    return sorted({(r.source.identity.round, r.source.identity.attempt) for r in records})


def test_without_marks_a_round_of_two_attempts_is_ambiguous(tmp_path: Path) -> None:
    history(tmp_path)
    with pytest.raises(StoreError, match=r"round 4 has attempts \[0, 1\] and none is accepted"):
        seen(tmp_path)
    assert seen(tmp_path, rounds=range(4)) == [(round, 0) for round in range(4)]


def test_the_caller_may_choose_attempts(tmp_path: Path) -> None:
    history(tmp_path)
    assert seen(tmp_path, attempts="latest", rounds=(4, 5)) == [(4, 1), (5, 0)]
    assert seen(tmp_path, attempts={4: 0, 9: 0}) == [(4, 0)]


def test_only_accepted_attempts_are_read_once_there_is_a_mark(tmp_path: Path) -> None:
    sink = history(tmp_path)
    for round in range(4):
        sink.accept(round=round, attempt=0)
    assert seen(tmp_path) == [(round, 0) for round in range(4)]
    sink.accept(round=4, attempt=1)
    assert seen(tmp_path) == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)]


def test_a_resumed_run_withdraws_what_was_rolled_back(tmp_path: Path) -> None:
    sink = history(tmp_path)
    for round in range(6):
        sink.accept(round=round, attempt=0)
    sink.roll_back(after=3)
    sink.roll_back(after=3)
    assert seen(tmp_path) == [(round, 0) for round in range(4)]
    sink.accept(round=4, attempt=1)
    assert seen(tmp_path) == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)]
    sink.roll_back(after=-1)
    assert seen(tmp_path) == []


@pytest.mark.parametrize("mark", [b"", b"{}", b'{"schema":"focus.accepted/1","run":"test"}'])
def test_a_damaged_mark_is_an_error(tmp_path: Path, mark: bytes) -> None:
    written(JsonlDirectory(tmp_path), three())
    (tmp_path / "round-000000.accepted.json").write_bytes(mark)
    with pytest.raises(SchemaError, match=r"round-000000\.accepted\.json"):
        list(read_critic_records(tmp_path))


def test_a_mark_under_another_rounds_name_is_an_error(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path)
    written(sink, three())
    sink.accept(round=0, attempt=0)
    (tmp_path / "round-000000.accepted.json").rename(tmp_path / "round-000001.accepted.json")
    with pytest.raises(SchemaError, match="marks round 0"):
        list(read_critic_records(tmp_path))


def test_an_unknown_choice_of_attempts_is_refused(tmp_path: Path) -> None:
    written(JsonlDirectory(tmp_path), three())
    unknown: Any = "newest"
    with pytest.raises(ConfigError, match="newest"):
        list(read_critic_records(tmp_path, attempts=unknown))
