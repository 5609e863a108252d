"""`focus show` on trees, training runs and collections."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from focus.records import save_tree
from focus.testing.trees import build_tree, end, fork

from .conftest import Invoke


def first_tree(run: Path) -> Path:
    return sorted((run / "trees").glob("*/*.json"))[0]


def test_a_tree_is_shown_with_every_node(trained: Path, invoke: Invoke) -> None:
    path = first_tree(trained)
    page = invoke("show", path, "--limit", 0).stdout
    nodes = json.loads(path.read_text())["body"]["tree"]["nodes"]
    assert page.count(" tok  ") == len(nodes) - 1
    assert "launch 0 from node 0, phase 0" in page
    assert all(line == line.rstrip() for line in page.splitlines())


def test_one_node_is_shown_with_its_context(trained: Path, invoke: Invoke) -> None:
    page = invoke("show", first_tree(trained), "--node", 1).stdout
    assert "1, depth 1, below node 0" in page
    assert "Put your final answer in" in page


def test_depth_and_limit_leave_out_and_say_so(trained: Path, invoke: Invoke) -> None:
    for option in (("--depth", 1), ("--limit", 3)):
        assert "more below node" in invoke("show", first_tree(trained), *option).stdout


def test_plain_is_ascii(trained: Path, invoke: Invoke) -> None:
    for path in (trained, first_tree(trained)):
        assert invoke("show", path, "--plain").stdout.isascii()


def test_a_run_is_shown_with_rounds_result_trees_and_example(trained: Path, invoke: Invoke) -> None:
    page = invoke("show", trained).stdout
    for part in ("task demo", "accuracy", "critic Brier", "tree-000.json", "problem"):
        assert part in page


def test_a_run_that_is_being_written_is_shown(
    trained: Path, tmp_path: Path, invoke: Invoke
) -> None:
    root = tmp_path / "running"
    shutil.copytree(trained, root)
    (root / "summary.json").unlink()
    with (root / "metrics.jsonl").open("a") as stream:
        stream.write('{"round": 1, "tok')
    page = invoke("show", root).stdout
    assert f"1 of 1 rounds applied; focus train --resume {root} goes on" in " ".join(page.split())


def test_a_collection_is_shown_with_what_is_missing(
    problems: Path, tmp_path: Path, invoke: Invoke
) -> None:
    problems.write_text(problems.read_text() + "not json\n")
    out = tmp_path / "out"
    invoke("collect", "--problems", problems, "--out", out, "--tokens", 96, code=3)
    page = invoke("show", out).stdout
    assert "2 of 3 collected, 1 bad" in page
    assert "line 3: bad: not readable JSON" in page
    assert "Compute 2 + 3." in page


def test_hostile_text_reaches_the_terminal_as_signs(tmp_path: Path, invoke: Invoke) -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    save_tree(tree, tmp_path / "t.json", texts={1: "[red]\x1b[2J\x07ü"})
    assert "[red]␛[2J␇ü" in invoke("show", tmp_path / "t.json").stdout
    assert r"[red]\x1b[2J\x07\xfc" in invoke("show", tmp_path / "t.json", "--plain").stdout


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere", "there is no such file or folder"),
        (".", "holds no run and no collection"),
        ("torn.json", "not readable JSON"),
        ("other.json", "schema"),
    ],
)
def test_what_cannot_be_shown_is_named(
    name: str, reason: str, tmp_path: Path, invoke: Invoke
) -> None:
    (tmp_path / "torn.json").write_text('{"schema"')
    (tmp_path / "other.json").write_text('{"schema": "focus.tree/9"}')
    result = invoke("show", tmp_path / name, code=1)
    assert result.stderr.startswith("error: ")
    assert reason in result.stderr


def test_a_node_that_is_not_there_is_wrong_usage(trained: Path, invoke: Invoke) -> None:
    assert (
        "the tree has nodes 0 to"
        in invoke("show", first_tree(trained), "--node", 99_999, code=2).stderr
    )
    invoke("show", trained, "--node", 1, code=2)
