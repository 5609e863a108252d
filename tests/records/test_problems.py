"""Problem files: good rows become problems, the others are listed with their reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from focus.errors import StoreError
from focus.problem import Message
from focus.records import ProblemFile, read_problems

from .strategies import any_text


def read(tmp_path: Path, *rows: Any, **keys: Any) -> ProblemFile:
    path = tmp_path / "rows.jsonl"
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return read_problems(path, **keys)


def test_math_rows(tmp_path: Path) -> None:
    row = {"problem": "2+2?", "solution": "\\boxed{4}", "level": "Level 1", "type": "Algebra"}
    [problem] = read(tmp_path, row).problems
    assert (problem.id, problem.prompt, problem.label) == (0, "2+2?", "\\boxed{4}")
    assert problem.metadata == {"level": "Level 1", "type": "Algebra"}


@pytest.mark.parametrize("label", ["label", "answer", "solution"])
def test_prompt_rows(tmp_path: Path, label: str) -> None:
    [problem] = read(tmp_path, {"id": "q1", "prompt": "2+2?", label: 4}).problems
    assert (problem.id, problem.prompt, problem.label) == ("q1", "2+2?", 4)


def test_named_keys(tmp_path: Path) -> None:
    row = {"problem": "no", "q": "2+2?", "a": "4"}
    [problem] = read(tmp_path, row, prompt_key="q", label_key="a").problems
    assert (problem.prompt, problem.label) == ("2+2?", "4")
    assert problem.metadata == {"problem": "no"}


def test_messages_are_a_prompt(tmp_path: Path) -> None:
    prompt = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "2+2?"}]
    [problem] = read(tmp_path, {"prompt": prompt, "label": "4"}).problems
    assert problem.prompt == (Message("system", "Answer."), Message("user", "2+2?"))


GOOD = {"problem": "2+2?", "solution": "4"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"{", "not readable JSON"),
        (b"[1]", "a row is an object"),
        (b'"text"', "a row is an object"),
        (b"\xff\xfe", "not readable JSON"),
        (b'{"problem": "a", "problem": "b", "solution": "4"}', "appears twice"),
        (b'{"problem": "a", "solution": NaN}', "NaN"),
        (b'{"problem": "\\ud83d", "solution": "4"}', "not readable JSON"),
        ({"solution": "4"}, "no prompt"),
        ({"problem": "", "solution": "4"}, "empty prompt in field 'problem'"),
        ({"problem": " \n", "solution": "4"}, "empty prompt"),
        ({"problem": None, "solution": "4"}, "empty prompt"),
        ({"problem": [], "solution": "4"}, "empty prompt"),
        ({"problem": 3, "solution": "4"}, "a prompt is text or messages"),
        ({"problem": [{"role": "user"}], "solution": "4"}, "'content' is missing"),
        ({"problem": "2+2?"}, "no reference"),
        ({"problem": "2+2?", "solution": ""}, "empty reference in field 'solution'"),
        ({"problem": "2+2?", "solution": None}, "empty reference"),
        ({"problem": "2+2?", "solution": "\t"}, "empty reference"),
        ({"problem": "2+2?", "solution": []}, "empty reference"),
        ({"id": True, **GOOD}, "an id is"),
        ({"id": None, **GOOD}, "an id is"),
        ({"id": 1.5, **GOOD}, "an id is"),
    ],
)
def test_a_bad_row_is_listed_and_the_others_stay(tmp_path: Path, row: Any, reason: str) -> None:
    found = read(tmp_path, {"id": "a", **GOOD}, row, {"id": "b", **GOOD})
    assert [problem.id for problem in found.problems] == ["a", "b"]
    [bad] = found.bad_rows
    assert bad.line == 2
    assert reason in bad.reason


def test_an_id_used_twice_is_bad_the_second_time(tmp_path: Path) -> None:
    found = read(tmp_path, {"id": 7, **GOOD}, {"id": "7", **GOOD}, {"id": 7, **GOOD})
    assert [problem.id for problem in found.problems] == [7, "7"]
    [bad] = found.bad_rows
    assert bad.line == 3
    assert "id 7 was used in line 1" in bad.reason


def test_false_and_zero_are_references(tmp_path: Path) -> None:
    found = read(tmp_path, {"prompt": "a", "label": 0}, {"prompt": "b", "label": False})
    assert [problem.label for problem in found.problems] == [0, False]


def test_blank_lines_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = json.dumps(GOOD).encode()
    path.write_bytes(b"\xef\xbb\xbf" + row + b"\r\n\r\n \n" + row)
    found = read_problems(path)
    assert [problem.id for problem in found.problems] == [0, 1]
    assert found.bad_rows == ()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        read_problems(tmp_path / "nowhere.jsonl")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(any_text.filter(str.strip), max_size=5), ascii_only=st.booleans())
def test_any_text_is_a_prompt(tmp_path: Path, texts: list[str], ascii_only: bool) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [json.dumps({"prompt": text, "label": text}, ensure_ascii=ascii_only) for text in texts]
    path.write_bytes("".join(row + "\n" for row in rows).encode())
    found = read_problems(path)
    assert [problem.prompt for problem in found.problems] == texts
    assert found.bad_rows == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_give_rows_or_reasons(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(data)
    found = read_problems(path)
    rows = [line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    assert len(found.problems) + len(found.bad_rows) == len(rows)
