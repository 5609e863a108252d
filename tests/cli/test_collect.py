"""`focus collect` from end to end, on the built-in model."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from focus.cli.collect import SOME_ROWS_LEFT
from focus.records import decode_actor, decode_packed, load_stored_tree, read_critic_records

from .conftest import Invoke

SMALL = ("--tokens", 96)

BAD_ROWS = """\
not json
{"problem": "", "solution": "x"}
{"problem": "no reference", "solution": ""}

{"solution": "no prompt"}
{"problem": "two answers", "solution": "1 and 2"}
{"problem": "a forged turn <|im_end|>", "solution": "6"}
"""


def index(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]


def test_every_row_has_its_tree_and_its_records(
    problems: Path, tmp_path: Path, invoke: Invoke
) -> None:
    out = tmp_path / "out"
    result = invoke("collect", "--problems", problems, "--out", out, *SMALL)
    assert "2 of 2 collected" in result.stdout
    assert "eta_gen" in result.stdout
    rows = index(out)
    assert [(row["line"], row["id"], row["status"]) for row in rows] == [
        (1, 0, "collected"),
        (2, "b", "collected"),
    ]
    critic = list(read_critic_records(out / "critic"))
    for row in rows:
        tree = load_stored_tree(out / str(row["tree"])).tree
        assert (tree.header.problem.id, len(tree)) == (row["id"], row["nodes"])
        lines = (out / str(row["actor"])).read_bytes().splitlines()
        actor = [decode_actor(json.loads(line)) for line in lines]
        assert {record.source.problem for record in actor} == {row["id"]}
        assert len(actor) == row["actor_records"]
    assert len(critic) == sum(int(str(row["critic_records"])) for row in rows)
    assert "tokens_generated" in json.loads((out / "summary.json").read_text())["ledger"]
    assert json.loads((out / "collect.json").read_text())["settings"]["seed"] == 0


def test_trees_can_be_packed_whole(problems: Path, tmp_path: Path, invoke: Invoke) -> None:
    out = tmp_path / "out"
    words = ("--out", out, "--packing", "tree", "--limit", 1, *SMALL)
    invoke("collect", "--problems", problems, *words)
    row = next(row for row in index(out) if row["status"] == "collected")
    (line,) = (out / str(row["actor"])).read_bytes().splitlines()
    packed = decode_packed(json.loads(line))
    tree = load_stored_tree(out / str(row["tree"])).tree
    assert packed.size == len(tree.header.prompt_ids) + tree.sampled_tokens()
    assert json.loads((out / "summary.json").read_text())["ledger"]["eta_learn"] == 1.0


def test_bad_rows_are_named_and_the_rest_is_collected(
    problems: Path, tmp_path: Path, invoke: Invoke
) -> None:
    long_row = json.dumps({"problem": "long " * 600, "solution": "3"}) + "\n"
    problems.write_text(problems.read_text() + BAD_ROWS + long_row)
    out = tmp_path / "out"
    result = invoke("collect", "--problems", problems, "--out", out, *SMALL, code=SOME_ROWS_LEFT)
    for line, reason in {
        3: "not readable JSON",
        4: "empty prompt",
        5: "empty reference",
        7: "no prompt",
        8: "several unboxed answers",
        9: "control tokens",
        10: "fills the context of 512",
    }.items():
        assert any(
            shown.startswith(f"line {line}: ") and reason in shown
            for shown in result.stderr.splitlines()
        ), (line, reason)
    assert "2 of 9 collected, 7 bad" in result.stdout
    assert [row["line"] for row in index(out)] == [1, 2, 3, 4, 5, 7, 8, 9, 10]
    assert {row["status"] for row in index(out)} == {"collected", "bad"}


def test_repeating_the_command_collects_nothing_again(
    problems: Path, tmp_path: Path, invoke: Invoke
) -> None:
    command = ("collect", "--problems", problems, "--out", tmp_path / "out", *SMALL)
    invoke(*command, "--limit", 1)
    first = (tmp_path / "out" / "trees").glob("*")
    stamps = {path: path.stat().st_mtime_ns for path in first}
    invoke(*command)
    assert len(stamps) == 1
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert len(index(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--model", "nowhere"], "no config.json in 'nowhere'"),
        (["--model", "{untemplated}"], "has no chat template"),
        (["--allowance", "8"], "smaller than one segment of 12; raise allowance"),
        (["--tokens", "0"], "buys nothing"),
        (["--tokens", "1"], "buys nothing"),
        (["--segment", "0"], "at least one token"),
        (["--concurrency", "0"], "oncurrency must be >= 1"),
        (["--critic", "1.2"], "1.2 lies outside"),
        (["--critic", "nan"], "nan lies outside"),
        (["--temperature", "0"], "temperature"),
        (["--out", "{trained}"], "holds a training run"),
        (["--out", "{problems}"], "is a file"),
        (["--problems", "nowhere.jsonl"], "nowhere.jsonl: there is no such file"),
    ],
)
def test_bad_settings_are_refused_before_a_token_or_a_file(
    arguments: list[str],
    remedy: str,
    problems: Path,
    untemplated: Path,
    trained: Path,
    tmp_path: Path,
    invoke: Invoke,
) -> None:
    out = tmp_path / "out"
    filled = [
        argument.format(untemplated=untemplated, trained=trained, problems=problems)
        for argument in arguments
    ]
    result = invoke("collect", "--problems", problems, "--out", out, *SMALL, *filled, code=1)
    assert result.stderr.startswith("error: ")
    assert remedy in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not out.exists()


def test_the_folder_of_another_collection_is_refused(
    problems: Path, tmp_path: Path, invoke: Invoke
) -> None:
    command = ("collect", "--problems", problems, "--out", tmp_path / "out", *SMALL)
    invoke(*command)
    result = invoke(*command, "--seed", 1, code=1)
    assert "holds another collection (seed was 0 and is 1)" in result.stderr


def test_a_file_without_a_good_row_is_an_error(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("[]\n")
    result = invoke("collect", "--problems", path, "--out", tmp_path / "out", code=1)
    assert result.stderr.splitlines()[0].startswith("line 1: ")
    assert "no usable row" in result.stderr
    assert not (tmp_path / "out").exists()


def test_rows_that_all_fail_have_code_1(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"problem": "long " * 600, "solution": "3"}) + "\n")
    result = invoke("collect", "--problems", path, "--out", tmp_path / "out", code=1)
    assert "0 of 1 collected, 1 bad" in result.stdout


@contextmanager
def full_disk(after_bytes: int) -> Iterator[None]:
    """Within the block no file of this process may grow past `after_bytes`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_the_command_and_leaves_nothing_half(
    problems: Path, tmp_path: Path, invoke: Invoke
) -> None:
    out = tmp_path / "out"
    command = ("collect", "--problems", problems, "--out", out, *SMALL)
    with full_disk(2000):
        result = invoke(*command, code=1)
    assert result.stderr.startswith(f"error: {out}/journal/")
    assert "cannot write an edge: File too large" in result.stderr
    assert not list((out / "trees").iterdir())
    assert not list((out / "rows").iterdir())
    invoke(*command)
    assert {row["status"] for row in index(out)} == {"collected"}
