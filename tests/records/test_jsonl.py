"""The sink: whole prompts only, one file each, whatever the ids, the disk or the neighbours."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.errors import ConfigError, RecordError, SchemaError, StoreError
from focus.integrations import JsonlDirectory
from focus.records import read_critic_records
from focus.records.files import Files
from focus.records.jsonl import PromptFile
from focus.testing.files import FAULTS, FailingFiles, Fault
from focus.testing.records import GOLDEN as GOLDEN_FILES
from focus.testing.records import critic_record, three

from .strategies import any_text

GOLDEN = GOLDEN_FILES / "directory"

UNSAFE_IDS: tuple[int | str, ...] = (
    "../../x",
    "/etc/x",
    "a/b",
    "a_b",
    "",
    ".",
    "..",
    "NUL",
    "x\0y",
    "a" * 300,
    "A",
    "a",
    "\u202eabc",
    "é",
    "e\u0301",
    7,
    "7",
    -7,
    10**30,
)


def test_nothing_is_touched_before_the_first_record(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path / "a" / "b")
    assert sink.write([]) is None
    assert os.listdir(tmp_path) == []


def test_the_first_write_makes_the_directory_and_its_manifest(tmp_path: Path) -> None:
    path = JsonlDirectory(tmp_path / "a" / "b").write(three())
    assert path is not None
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["manifest.json", path.name]
    manifest = json.loads((tmp_path / "a" / "b" / "manifest.json").read_bytes())
    assert manifest == {
        "schema": "focus.records/1",
        "records": "focus.critic/1",
        "run": "test",
    }


def test_each_line_is_one_record_and_says_which(tmp_path: Path) -> None:
    path = JsonlDirectory(tmp_path).write(three())
    assert path is not None
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert [(json.loads(x)["line"], json.loads(x)["lines"]) for x in lines] == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]
    assert {json.loads(x)["problem"] for x in lines} == {7}


def test_a_directory_is_written_as_the_golden_one_byte_for_byte(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path)
    sink.write(three("math/7", round=3, attempt=1))
    sink.accept(round=3, attempt=1)
    assert sorted(os.listdir(tmp_path)) == sorted(os.listdir(GOLDEN))
    for name in os.listdir(GOLDEN):
        assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_unsafe_ids_stay_inside_and_apart(tmp_path: Path) -> None:
    inside = tmp_path / "records"
    sink = JsonlDirectory(inside)
    paths = [sink.write(three(problem)) for problem in UNSAFE_IDS]
    assert all(path is not None and path.parent == inside for path in paths)
    assert len({str(path).lower() for path in paths}) == len(UNSAFE_IDS)
    assert os.listdir(tmp_path) == ["records"]
    found = {(type(r.source.problem), r.source.problem) for r in read_critic_records(inside)}
    assert found == {(type(problem), problem) for problem in UNSAFE_IDS}


@given(st.lists(st.integers() | any_text, unique_by=lambda x: (type(x), x), max_size=20))
def test_distinct_ids_have_distinct_plain_names(ids: list[int | str]) -> None:
    names = {PromptFile.of(critic_record(problem=problem).source).name for problem in ids}
    assert len(names) == len(ids)
    assert all(name == Path(name).name and name.isascii() and len(name) < 80 for name in names)
    assert all(PromptFile.parse(name) is not None for name in names)


def test_run_round_and_attempt_are_part_of_the_name() -> None:
    sources = [
        critic_record(run=run, round=round, attempt=attempt).source
        for run in ("a", "b")
        for round in (0, 1, 10**7)
        for attempt in (0, 1)
    ]
    files = [PromptFile.of(source) for source in sources]
    assert len({file.name for file in files}) == len(sources)
    assert [PromptFile.parse(file.name) for file in files] == files


@pytest.mark.parametrize(
    "name", ["x.jsonl", "round-3.attempt-0.ab.jsonl", "../round-000003.attempt-000.jsonl"]
)
def test_other_names_are_not_ours(name: str) -> None:
    assert PromptFile.parse(name) is None


def test_half_a_character_in_an_id_is_refused_before_any_file_is_touched(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be stored as JSON"):
        JsonlDirectory(tmp_path / "new").write(three("\ud83d"))
    assert os.listdir(tmp_path) == []


def test_the_same_prompt_twice_is_refused_and_kept(tmp_path: Path) -> None:
    path = JsonlDirectory(tmp_path).write(three())
    assert path is not None
    before = path.read_bytes()
    other = [dataclasses.replace(record, target=0.25) for record in three()]
    with pytest.raises(StoreError, match=r"problem 7 was written before.*new attempt"):
        JsonlDirectory(tmp_path).write(other)
    assert path.read_bytes() == before
    JsonlDirectory(tmp_path).write(three(attempt=1))


def test_records_of_two_prompts_or_two_of_one_node_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="in one write"):
        JsonlDirectory(tmp_path / "a").write([*three(7), critic_record(node=4, problem=8)])
    with pytest.raises(RecordError, match="two records of one node"):
        JsonlDirectory(tmp_path / "a").write([critic_record(), critic_record()])
    assert os.listdir(tmp_path) == []


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("notes")
    with pytest.raises(StoreError, match=r"/a: .*choose another path"):
        JsonlDirectory(tmp_path / "a").write(three())
    with pytest.raises(StoreError, match=r"/a/b: .*choose another path"):
        JsonlDirectory(tmp_path / "a" / "b").write(three())


@pytest.mark.parametrize(
    "manifest",
    [b"", b"{}", b"[]", b"not json", b'{"schema":"other/1"}', b'{"schema":"focus.records/2"}'],
)
def test_a_foreign_manifest_is_refused(tmp_path: Path, manifest: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(manifest)
    with pytest.raises(SchemaError, match="not a directory of FOCUS records"):
        JsonlDirectory(tmp_path).write(three())
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_another_runs_directory_is_refused(tmp_path: Path) -> None:
    JsonlDirectory(tmp_path).write(three())
    with pytest.raises(StoreError, match=r"belongs to run 'test', not to 'next'"):
        JsonlDirectory(tmp_path).write(three(run="next"))
    with pytest.raises(StoreError, match="opened for run 'mine', got a record of 'test'"):
        JsonlDirectory(tmp_path, run="mine").write(three(8))


def test_a_later_change_of_directory_does_not_split_the_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = JsonlDirectory("records")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert sink.write(three()) is not None
    assert (tmp_path / "records").is_dir()


def test_a_directory_that_vanished_is_made_again_on_the_next_try(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path / "a")
    sink.write(three(1))
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(StoreError, match="Check that the path still exists"):
        sink.write(three(2))
    sink.write(three(2))
    assert list(read_critic_records(tmp_path / "a")) == three(2)


@pytest.mark.parametrize("fsync", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_failing_disk_loses_nothing_silently(tmp_path: Path, fault: Fault, fsync: bool) -> None:
    """The n-th call fails, for all n: stored whole, or an error and stored on the next try."""
    n = 0
    while True:
        directory = tmp_path / str(n)
        JsonlDirectory(directory / "old").write(three(1))
        files = FailingFiles(fault, at=n)
        sink = JsonlDirectory(directory / "new", fsync=fsync, files=files)
        error = error_of(sink)
        if error is not None:
            assert str(directory / "new") in str(error)
            assert not list((directory / "new").glob("*.jsonl"))
            sink.write(three())
        assert list(read_critic_records(directory / "new")) == three()
        assert list(read_critic_records(directory / "old")) == three(1)
        if not files.met:
            break
        n += 1
    assert n >= (12 if fsync else 9)


def error_of(sink: JsonlDirectory) -> StoreError | None:
    try:
        sink.write(three())
    except StoreError as error:
        return error
    return None


def run_python(script: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


RIVAL = """
import sys
from focus.errors import StoreError
from focus.records import JsonlDirectory
from focus.testing.records import critic_record

sink, won = JsonlDirectory(sys.argv[1]), 0
for number in range(40):
    try:
        sink.write([critic_record(problem=number, target=int(sys.argv[2]) / 4)])
        won += 1
    except StoreError:
        pass
print(won)
"""


def test_rivals_for_one_name_never_replace_each_other(tmp_path: Path) -> None:
    rivals = [run_python(RIVAL, tmp_path, str(number)) for number in range(4)]
    results = [rival.communicate() for rival in rivals]
    assert [errors.decode() for _, errors in results] == [""] * 4
    assert sum(int(won) for won, _ in results) == 40
    assert len(list(read_critic_records(tmp_path))) == 40


def test_rival_runs_cannot_share_a_new_directory(tmp_path: Path) -> None:
    class Late(Files):
        """Another run's manifest appears between the mkdir and ours."""

        def make_directory(self, path: Path) -> None:
            JsonlDirectory(path).write(three(run="rival"))

    with pytest.raises(StoreError, match="belongs to run 'rival'"):
        JsonlDirectory(tmp_path / "a", files=Late()).write(three())


def test_acceptance_is_repeatable_and_only_moves_forward(tmp_path: Path) -> None:
    sink = JsonlDirectory(tmp_path)
    with pytest.raises(StoreError, match=r"no manifest\.json|No such file"):
        JsonlDirectory(tmp_path / "none").accept(round=0, attempt=0)
    sink.write(three())
    sink.accept(round=0, attempt=1)
    sink.accept(round=0, attempt=1)
    sink.accept(round=0, attempt=2)
    with pytest.raises(StoreError, match="attempt 2 of round 0 is accepted; 1 is older"):
        sink.accept(round=0, attempt=1)
    with pytest.raises(ConfigError):
        sink.accept(round=-1, attempt=0)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_names_sort_by_round_and_attempt(numbers: list[int]) -> None:
    files = [
        PromptFile.of(critic_record(round=round, attempt=attempt).source)
        for round in numbers
        for attempt in numbers
    ]
    assert [f.name for f in sorted(files)] == sorted(f.name for f in files)
