"""Runs as tables and in trackers: what is written says the same as the trees and the metrics."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from focus.cli.main import app
from focus.credit import RefinedTd
from focus.exports import TABLES, TRACKERS, node_rows, round_rows
from focus.records.tree_store import StoredTree, save_tree
from focus.testing.trees import Sketch, build_tree, chain, end, fork

ROUNDS = [
    {"round": 0, "collection_success": 0.25, "critic_version": "constant-0.5"},
    {"round": 1, "collection_success": 0.5, "critic_version": "critic-1", "critic_brier": 0.2},
]


def drawn() -> StoredTree:
    """Sampled and given tokens, a truncated end and an unfinished tip."""
    tree = build_tree(
        fork(
            0.5,
            chain([0.5, 0.25], outcome=1.0),
            end(0.0, truncated=True, observed=2),
            Sketch(value=0.75, sampled=3),
        )
    )
    texts = {node.id: f"text of {node.id}\n" for node in tree}
    return StoredTree(tree=tree, texts=texts, credit=RefinedTd().estimate(tree))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a training run, as far as exports read it."""
    root = tmp_path / "run"
    for name in ("a", "b"):
        stored = drawn()
        path = root / "trees" / "round-0000" / f"{name}.json"
        save_tree(stored.tree, path, texts=stored.texts, credit=stored.credit)
    (root / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROUNDS))
    (root / "config.json").write_text('{"seed": 3}')
    return root


def export(run: Path, *arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["export", *map(str, (run, *arguments))])
    assert result.exit_code == code, result.output
    return result.output


def jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_jsonl_and_parquet_hold_the_same_rows(run: Path, tmp_path: Path) -> None:
    said = {
        kind: export(run, "--to", kind, "--out", tmp_path / kind) for kind in ("jsonl", "parquet")
    }
    assert "wrote launches.jsonl, nodes.jsonl, rounds.jsonl, trees.jsonl" in said["jsonl"]
    for name in ("rounds", *TABLES):
        table = pyarrow.parquet.read_table(tmp_path / "parquet" / f"{name}.parquet")
        assert table.to_pylist() == jsonl(tmp_path / "jsonl" / f"{name}.jsonl")


def test_rows_say_what_the_tree_says(run: Path, tmp_path: Path) -> None:
    export(run, "--to", "jsonl", "--out", tmp_path / "out")
    stored = drawn()
    rows = [
        row for row in jsonl(tmp_path / "out" / "nodes.jsonl") if row["tree"].endswith("a.json")
    ]
    assert [row["node"] for row in rows] == [node.id for node in stored.tree]
    assert stored.credit is not None
    for row, node in zip(rows, stored.tree, strict=True):
        assert row["parent"] == node.parent
        assert row["value"] == node.value
        assert row["advantage"] == stored.credit.advantages.get(node.id)
        if node.edge is not None:
            kept = [v for v, s in zip(row["log_probs"], row["sampled"], strict=True) if s]
            assert tuple(row["ids"]) == node.edge.ids
            assert tuple(kept) == node.edge.log_probs
    [tree] = [
        row for row in jsonl(tmp_path / "out" / "trees.jsonl") if row["tree"].endswith("a.json")
    ]
    assert tree["outcomes"] == [1.0, 0.0]


def test_every_table_names_every_column_it_fills() -> None:
    for row in node_rows("t", drawn()):
        assert row.keys() <= {column.name for column in TABLES["nodes"]}


def test_a_round_without_a_figure_has_an_empty_cell() -> None:
    rows = list(round_rows(ROUNDS))
    assert rows[0]["critic_brier"] is None
    assert [row.keys() for row in rows] == [rows[0].keys()] * 2


def test_tensorboard_gets_every_number_of_every_round(run: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert "logged 2 rounds" in export(run, "--to", "tensorboard", "--out", tmp_path / "board")
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    found = {name: [event.value for event in read.Scalars(name)] for name in read.Tags()["scalars"]}
    assert found["collection_success"] == [0.25, 0.5]
    assert set(found) == {"round", "collection_success", "critic_brier"}


@pytest.mark.parametrize("kind", sorted(TRACKERS.keys() - {"tensorboard"}))
def test_a_missing_tracker_is_named_with_its_remedy(
    run: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    said = export(run, "--to", kind, code=1)
    assert f'pip install "focus-rl[{kind}]"' in said


def test_a_collection_has_no_rounds_to_log(tmp_path: Path) -> None:
    (tmp_path / "collect.json").write_text('{"settings": {}}')
    (tmp_path / "index.jsonl").write_text("")
    assert "has no rounds" in export(tmp_path, "--to", "tensorboard", code=1)
