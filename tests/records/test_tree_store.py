"""A stored tree gives the same credit, the same records and the same bytes again."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from focus.credit.base import Credit
from focus.errors import Failure, RecordError, SchemaError, StoreError
from focus.problem import Problem
from focus.records import actor_records, load_stored_tree, load_tree, save_tree
from focus.testing.files import FAULTS, FailingFiles, Fault
from focus.testing.records import CREDIT, FAILURES, TEXTS, golden_tree
from focus.testing.records import GOLDEN as GOLDEN_FILES
from focus.tree import Tree, TreeHeader

from .strategies import any_text, credited_trees, random_credit, random_tree

GOLDEN = GOLDEN_FILES / "tree-1.json"
shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def same_tree(tree: Tree[Any], other: Tree[Any]) -> bool:
    return (
        tree.header == other.header
        and list(tree) == list(other)
        and tree.selections == other.selections
    )


@shared_folder
@given(case=credited_trees(), texts=st.dictionaries(st.just(0), any_text))
def test_trees_round_trip_with_all_that_lies_beside_them(
    tmp_path: Path, case: tuple[Tree[None], Credit], texts: dict[int, str]
) -> None:
    tree, credit = case
    failures = (Failure("prediction", -1, 0, "CriticError", "late"),)
    path = tmp_path / "tree.json"
    save_tree(tree, path, texts=texts, credit=credit, failures=failures)
    stored = load_stored_tree(path)
    assert same_tree(stored.tree, tree)
    assert stored.texts == texts
    assert stored.credit == credit
    assert stored.failures == failures


@shared_folder
@given(case=credited_trees())
def test_records_derive_again_bit_for_bit(tmp_path: Path, case: tuple[Tree[None], Credit]) -> None:
    tree, credit = case
    save_tree(tree, tmp_path / "tree.json")
    loaded = load_tree(tmp_path / "tree.json")
    for packing in ("segment", "path"):
        assert repr(actor_records(loaded, credit, packing=packing)) == repr(
            actor_records(tree, credit, packing=packing)
        )


@shared_folder
@given(case=credited_trees())
def test_saving_a_loaded_tree_gives_the_same_bytes(
    tmp_path: Path, case: tuple[Tree[None], Credit]
) -> None:
    tree, credit = case
    save_tree(tree, tmp_path / "a.json", credit=credit)
    save_tree(load_tree(tmp_path / "a.json"), tmp_path / "b.json", credit=credit)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_the_golden_tree_is_written_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "tree.json"
    save_tree(golden_tree(), path, texts=TEXTS, credit=CREDIT, failures=FAILURES)
    assert path.read_bytes() == GOLDEN.read_bytes()


def test_the_golden_tree_reads_back() -> None:
    stored = load_stored_tree(GOLDEN)
    assert same_tree(stored.tree, golden_tree())
    assert (stored.texts, stored.credit, stored.failures) == (TEXTS, CREDIT, FAILURES)
    assert stored.tree.selections[0].score == float("inf")
    assert stored.tree.root.payload is None


def test_another_layout_of_the_same_values_is_the_same_tree(tmp_path: Path) -> None:
    path = tmp_path / "pretty.json"
    path.write_text(json.dumps(json.loads(GOLDEN.read_bytes()), indent=2, ensure_ascii=False))
    assert same_tree(load_tree(path), golden_tree())


@pytest.mark.parametrize("seed", range(30))
def test_any_changed_byte_is_found(tmp_path: Path, seed: int) -> None:
    data = bytearray(GOLDEN.read_bytes())
    rng = random.Random(seed)
    at = rng.randrange(len(data) - 1)
    data[at] = rng.choice([byte for byte in b'019a"{}[],:' if byte != data[at]])
    path = tmp_path / "tree.json"
    path.write_bytes(bytes(data))
    with pytest.raises(SchemaError, match=str(path)):
        load_tree(path)


def test_any_cut_is_found(tmp_path: Path) -> None:
    data = GOLDEN.read_bytes()
    path = tmp_path / "tree.json"
    for cut in range(0, len(data) - 1, 29):
        path.write_bytes(data[:cut])
        with pytest.raises(SchemaError):
            load_tree(path)


def test_another_version_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_bytes(GOLDEN.read_bytes().replace(b"focus.tree/1", b"focus.tree/2"))
    with pytest.raises(SchemaError, match=r"focus\.tree/2"):
        load_tree(path)


def forged(tmp_path: Path, change: Any) -> Path:
    """A file with a right digest over a wrong body."""
    content = json.loads(GOLDEN.read_bytes())
    change(content["body"])
    body = json.dumps(content["body"], separators=(",", ":")).encode()
    content["sha256"] = hashlib.sha256(body).hexdigest()
    path = tmp_path / "forged.json"
    path.write_text(json.dumps(content, separators=(",", ":")))
    return path


def _set(*keys: Any, to: Any) -> Any:
    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        body[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_set("tree", "nodes", to=[]), "at least its root"),
        (_set("tree", "nodes", 0, "parent", to=0), "root has no parent"),
        (_set("tree", "nodes", 0, "terminal", to=True), "root has not ended"),
        (_set("tree", "nodes", 1, "parent", to=9), "no node 9"),
        (_set("tree", "nodes", 1, "parent", to=1), "no node 1"),
        (_set("tree", "nodes", 1, "terminal", to=True), "terminal and cannot be continued"),
        (_set("tree", "nodes", 1, "value", to=True), "value"),
        (_set("tree", "nodes", 1, "edge", to=None), "expected an object"),
        (_set("tree", "nodes", 1, "edge", "finish", to="why"), "unknown reason 'why'"),
        (_set("tree", "nodes", 1, "edge", "spans", 0, "log_probs", to=[-0.1]), "1 log-probs"),
        (_set("tree", "header", "critic_range", to=[0]), "two numbers"),
        (_set("tree", "header", "sampling", "top_p", to=3.0), "top_p"),
        (_set("tree", "header", "returns", "discount", to=0.0), "discount"),
        (_set("tree", "header", "problem", "prompt", to=""), "prompt"),
        (_set("credit", "advantages", to={"01": 0.5}), "not node numbers"),
        (_set("credit", "advantages", to={"x": 0.5}), "credit"),
        (_set("credit", "targets", "0", "count", to=0), "count"),
        (_set("failures", 0, "node", to=-2), "node"),
        (_set("novelty", to=1), "novelty"),
    ],
)
def test_a_tree_that_could_not_have_grown_is_refused(
    tmp_path: Path, change: Any, complaint: str
) -> None:
    with pytest.raises(SchemaError, match=complaint):
        load_stored_tree(forged(tmp_path, change))


def test_a_label_that_is_not_json_is_refused_before_any_file_is_touched(tmp_path: Path) -> None:
    header = TreeHeader(problem=Problem(id=1, prompt="p", label=object()), prompt_ids=(1,))
    with pytest.raises(RecordError, match="problem 1: label"):
        save_tree(Tree(header, None, value=None), tmp_path / "new" / "tree.json")
    assert os.listdir(tmp_path) == []


def test_texts_and_credit_of_another_tree_are_refused(tmp_path: Path) -> None:
    tree = golden_tree()
    with pytest.raises(RecordError, match=r"\[9\]"):
        save_tree(tree, tmp_path / "a", texts={9: "x"})
    with pytest.raises(RecordError, match=r"\[9\]"):
        save_tree(tree, tmp_path / "a", credit=Credit(estimator="e", advantages={9: 0.5}))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        load_tree(tmp_path / "nowhere.json")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_failing_disk_leaves_the_old_tree_or_the_new_one(tmp_path: Path, fault: Fault) -> None:
    rng = random.Random(0)
    old, new = random_tree(rng, nodes=5), random_tree(rng, nodes=6)
    credit = random_credit(new, rng)
    path = tmp_path / "tree.json"
    n = 0
    while True:
        save_tree(old, path)
        files = FailingFiles(fault, at=n)
        try:
            save_tree(new, path, credit=credit, files=files)
        except StoreError:
            assert same_tree(load_tree(path), old)
        else:
            assert same_tree(load_tree(path), new)
        if not files.met:
            break
        n += 1
    assert n >= 5
