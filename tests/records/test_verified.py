"""What one tree's checks remember never lets an equal but other tuple pass."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from focus.credit.base import Credit
from focus.errors import RecordError
from focus.records import actor_records, check_export
from focus.records.outcomes import mean_outcomes, truncated_below
from focus.records.tree_invariants import INTS, NUMBERS, has_types
from focus.records.verified import Verified
from focus.testing.trees import build_tree, end, fork
from focus.tree import NodeId, Tree

from .strategies import credited_trees

TREE = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0), end(1.0))))
CREDIT = Credit(estimator="by hand", advantages={1: 0.5, 2: 1.0, 3: -1.0, 4: 1.0})


def test_siblings_share_their_prefix_and_it_is_read_once():
    records = actor_records(TREE, CREDIT)[1:]
    verified = Verified(TREE)
    assert all(one.prefix is other.prefix for one, other in pairwise(records))
    assert not verified.is_context(records[0].prefix, 1)
    verified.add_context(records[0].prefix, 1)
    assert verified.is_context(records[1].prefix, 1)
    assert not verified.is_context(tuple([*records[1].prefix]), 1)
    assert not verified.is_context(records[1].prefix, 2)


@pytest.mark.parametrize(
    ("field", "alter", "invariant"),
    [
        ("prefix", lambda ids: (*map(float, ids),), "I1"),
        ("prefix", lambda ids: (True, *ids[1:]), "I1"),
        ("prefix", lambda ids: (*ids[:-1], ids[-1] + 1), "I3"),
        ("response", lambda ids: (*map(float, ids),), "I1"),
        ("loss_mask", lambda mask: (True,) * len(mask), "I2"),
        ("loss_mask", lambda mask: (1.0,) * len(mask), "I2"),
        ("weights", lambda weights: (True,) * len(weights), "I11"),
    ],
)
def test_an_equal_tuple_of_other_types_is_refused_behind_sound_siblings(
    field: str, alter: Any, invariant: str
) -> None:
    records = list(actor_records(TREE, CREDIT))
    records[3] = dataclasses.replace(records[3], **{field: alter(getattr(records[3], field))})
    with pytest.raises(RecordError, match=rf"node 4: .*\[{invariant}\]"):
        check_export(records, TREE, CREDIT)


def test_log_probs_do_not_pass_as_ids_because_they_passed_as_numbers():
    reply = TREE[2].incoming.log_probs
    verified = Verified(TREE)
    assert verified.are_numbers(reply)
    assert not verified.are_ints(reply)


@pytest.mark.parametrize(
    ("values", "ints", "numbers"),
    [
        ((), True, True),
        ((1, 2), True, True),
        ((1, 0.5), False, True),
        ((0.5, 1.5), False, True),
        ((True,), False, False),
        ((1, None), False, False),
        (("1",), False, False),
    ],
)
def test_types_are_exact(values: tuple[Any, ...], ints: bool, numbers: bool) -> None:
    assert has_types(values, INTS) is ints
    assert has_types(values, NUMBERS) is numbers


def _leaves_below(tree: Tree[Any], node_id: NodeId) -> list[NodeId]:
    return [leaf for leaf in tree.terminals() if node_id in tree.path(leaf)]


@given(credited_trees())
def test_outcomes_and_truncation_are_those_of_the_leaves_below(
    case: tuple[Tree[None], Credit],
) -> None:
    tree, _ = case
    outcomes, truncated = mean_outcomes(tree), truncated_below(tree)
    for node in tree:
        below = _leaves_below(tree, node.id)
        rewards = [tree.outcome(leaf) for leaf in below]
        expected = pytest.approx(sum(rewards) / len(rewards)) if rewards else None
        assert outcomes[node.id] == expected
        assert (node.id in truncated) is any(tree[leaf].is_truncated for leaf in below)
