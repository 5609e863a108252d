"""The outside checker takes packed trees apart, and finds what is wrong with one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from focus.credit import DirectBranchTd
from focus.promises.gauntlet import checked
from focus.promises.sampled import exported
from focus.records import actor_records
from focus.testing.trees import build_tree, random_sketch

Record = dict[str, Any]
Change = Callable[[Record], Any]


def verdict_on(change: Change, folder: Path) -> dict[str, Any]:
    """The checker's verdict on a packed tree that `change` altered."""
    tree = build_tree(random_sketch(random.Random(5), nodes=24, shaping=0.0))
    credit = DirectBranchTd().estimate(tree)
    line, replies = exported(tree, actor_records(tree, credit, packing="tree"), credit, 0)
    (record,) = line["actor"]
    change(record)
    (folder / "trees.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "server.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    return checked(folder)


def test_a_sound_one_passes(tmp_path: Path) -> None:
    verdict = verdict_on(lambda record: None, tmp_path)
    assert verdict["findings"] == []
    assert verdict["trained"]["samples"] == 1
    assert verdict["trained"]["trained_ids"] > 20


def segment(name: str, change: Callable[[Any], Any]) -> Change:
    """Change a field of a trained segment in the middle of the row."""

    def spoil(record: Record) -> None:
        trained = [one for one in record["segments"] if one["log_probs"]]
        found = trained[len(trained) // 2]
        found[name] = change(found[name])

    return spoil


def edge(name: str, value: Any) -> Change:
    return lambda record: record["edges"][1].update({name: value})


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        (segment("ids", lambda ids: [*ids[:-1], ids[-1] + 1]), "I19"),
        (segment("ids", lambda ids: [*ids[:-1], float(ids[-1])]), "I1"),
        (segment("log_probs", lambda values: [v - 1e-9 for v in values]), "I4"),
        (segment("log_probs", lambda values: [0.5 for _ in values]), "I6"),
        (segment("weight", lambda weight: weight + 1e-9), "I12"),
        (segment("weight", lambda weight: float("nan")), "I11"),
        (segment("end", lambda end: end + 1), "I20"),
        (segment("start", lambda start: start + 1), "I20"),
        (segment("position", lambda position: position + 1), "I20"),
        (segment("parent", lambda parent: 0 if parent else -1), "I20"),
        (segment("node", lambda node: node + 1), "I19"),
        (lambda record: record["segments"].pop(), "I19"),
        (lambda record: record["segments"].append(record["segments"][-1]), "I19"),
        (lambda record: record["edges"].pop(), "I10"),
        (lambda record: record["edges"].append(record["edges"][0]), "I10"),
        (lambda record: record["lineage"].append(0), "I8"),
        (edge("outcome", -3.0), "I17"),
        (edge("truncated", None), "I14"),
        (lambda record: record.update(temperature=0.5), "I16"),
        (lambda record: record.update(policy_version="another"), "I13"),
    ],
)
def test_each_fault_is_found_under_its_name(change: Change, invariant: str, tmp_path: Path) -> None:
    assert invariant in verdict_on(change, tmp_path)["by_invariant"]
