"""`focus credit` on stored trees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from focus.credit.comparison import ESTIMATORS
from focus.records import save_tree
from focus.testing.trees import build_tree, chain, end, fork

from .conftest import Invoke


@pytest.fixture
def forked(tmp_path: Path) -> Path:
    path = tmp_path / "tree.json"
    save_tree(
        build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0)), end(0.0))),
        path,
        texts={1: "first", 2: "\x1b[31mred"},
    )
    return path


def test_every_estimator_has_a_line_and_refusals_a_reason(forked: Path, invoke: Invoke) -> None:
    page = invoke("credit", forked).stdout
    for name in ESTIMATORS:
        assert name in page
    assert "grpo n/a: node 1 has 2 children" in " ".join(page.split())


def test_edges_show_each_advantage_and_no_control_codes(forked: Path, invoke: Invoke) -> None:
    page = invoke(
        "credit", forked, "--with", "direct-branch", "--with", "lambda:decay=1", "--edges"
    )
    assert "lambda:decay=1" in page.stdout
    assert "first" in page.stdout
    assert "\x1b[31m" not in page.stdout


def test_numbers_reach_the_file(forked: Path, tmp_path: Path, invoke: Invoke) -> None:
    target = tmp_path / "numbers.json"
    invoke("credit", forked, "--with", "rloo", "--with", "spo-tree", "--json", target)
    rows = json.loads(target.read_text())["estimators"]
    assert [row["name"] for row in rows] == ["rloo", "spo-tree"]
    assert rows[0]["trees"] == 0
    assert rows[1]["edges"] == 4


def test_a_run_gives_all_its_trees(trained: Path, invoke: Invoke) -> None:
    page = invoke("credit", trained, "--with", "refined").stdout
    stored = len(list((trained / "trees").glob("*/*.json")))
    assert f" {stored} " in page


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["--with", "nonsense"], "known: direct-branch"),
        (["--with", "lambda:speed=2"], "its options: decay, prior_strength"),
        (["--with", "lambda:decay"], "no OPTION=VALUE"),
    ],
)
def test_mistakes_are_named(
    forked: Path, invoke: Invoke, arguments: list[str], culprit: str
) -> None:
    result = invoke("credit", forked, *arguments, code=1)
    assert culprit in " ".join(result.stderr.split())


def test_edges_want_one_tree(tmp_path: Path, forked: Path, invoke: Invoke) -> None:
    other = tmp_path / "other.json"
    save_tree(build_tree(chain([0.5], outcome=1.0)), other)
    result = invoke("credit", forked, other, "--edges", code=2)
    assert "--edges" in result.stderr
