"""Packed trees come back equal from JSON; anything else is refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from focus.credit.base import Credit
from focus.errors import SchemaError
from focus.records import actor_records, decode_packed, encode_actor, encode_packed, encode_sample
from focus.records.packed_tree import pack_tree
from focus.records.strict_json import dumps, loads
from focus.testing.records import CREDIT, GOLDEN, golden_tree
from focus.testing.trees import build_tree, end, fork
from focus.tree import Tree

from .strategies import credited_trees

Change = Callable[[dict[str, Any]], Any]


def through_json(plain: dict[str, Any]) -> Any:
    return loads(dumps(plain, what="value"), where="value")


@given(credited_trees())
def test_a_packed_tree_round_trips(case: tuple[Tree[None], Credit]) -> None:
    packed = pack_tree(*case)
    assert decode_packed(through_json(encode_packed(packed))) == packed


def test_what_is_written_is_the_golden_file_byte_for_byte() -> None:
    (packed,) = actor_records(golden_tree(), CREDIT, packing="tree")
    line = dumps(encode_packed(packed), what="") + b"\n"
    assert line == (GOLDEN / "packed-1.jsonl").read_bytes()
    assert decode_packed(loads(line, where="golden")) == packed


def test_a_sample_says_which_packing_it_is_of() -> None:
    tree = golden_tree()
    (packed,) = actor_records(tree, CREDIT, packing="tree")
    assert encode_sample(packed) == encode_packed(packed)
    for row in actor_records(tree, CREDIT):
        assert encode_sample(row) == encode_actor(row)


def stored() -> dict[str, Any]:
    tree = build_tree(fork(0.5, fork(0.4, end(1.0, sampled=2), end(0.0)), end(1.0)))
    credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.2, 3: -0.2, 4: 0.4})
    plain: dict[str, Any] = through_json(encode_packed(pack_tree(tree, credit)))
    return plain


def segment(**change: Any) -> Change:
    """Change the last segment but one."""
    return lambda plain: plain["segments"][-2].update(change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p.update(schema="focus.packed/2"), "schema"),
        (lambda p: p.update(more=1), "more"),
        (lambda p: p.pop("edges"), "edges"),
        (lambda p: p["edges"][0].update(truncated=0), "edge 0.truncated"),
        (lambda p: p["edges"][0].update(outcome="1"), "edge 0.outcome"),
        (lambda p: p["edges"].pop(), "edges are not those"),
        (lambda p: p["edges"].append(p["edges"][-1]), "edges are not those"),
        (lambda p: p["segments"][0].pop("ids"), "segment 0: 'ids' is missing"),
        (lambda p: p["segments"].pop(0), "starts at"),
        (segment(parent=-2), "parent"),
        (segment(parent=0), "stands behind segment"),
        (segment(start=1), "starts at"),
        (segment(position=0), "position"),
        (segment(end=100), "ends at"),
        (segment(ids=[]), "0 tokens"),
        (segment(ids=[True]), "ids"),
        (segment(log_probs=[-0.5, -0.5]), "log-probs"),
        (segment(log_probs=[]), "edges are not those"),
        (segment(weight=None), "weight"),
        (segment(node=9), "node 9 outside a tree of 5"),
        (lambda p: p.update(lineage=[0, 1, 1, 4]), "lineage"),
        (lambda p: p.update(lineage=[0, 1, 1]), "outside a tree of 4"),
        (lambda p: p.update(folds=[7]), "node 7 outside"),
    ],
)
def test_anything_else_is_refused_by_name(change: Change, words: str) -> None:
    assert decode_packed(stored()).nodes == (1, 2, 3, 4)
    plain = copy.deepcopy(stored())
    change(plain)
    with pytest.raises(SchemaError, match=words):
        decode_packed(plain)
