"""A packed tree holds each token of its tree once, and says what conditions it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from focus.credit.base import Credit
from focus.errors import RecordError
from focus.promises.packed_mutants import PACKED_MUTANTS
from focus.records import PackedTree, TokenColumns, actor_records, as_rows, check_export
from focus.records.packed_tree import pack_tree
from focus.records.unpacking import path_records
from focus.testing.trees import build_tree, chain, end, fork
from focus.tokens import Span, TokenIds
from focus.tree import Edge, Provenance, Tree

from .strategies import credited_trees

CreditedTree = tuple[Tree[None], Credit]
Trained = tuple[TokenIds, int, float, float]


def above(columns: TokenColumns, token: int) -> list[int]:
    """Tokens before one on its path, by the chain of parents."""
    path = []
    current = columns.parents[token]
    while current >= 0:
        path.append(current)
        current = columns.parents[current]
    return path[::-1]


def trained(packed: PackedTree) -> Iterator[Trained]:
    columns = packed.columns()
    for token, mask in enumerate(columns.loss_mask):
        if mask:
            context = tuple(columns.ids[index] for index in above(columns, token))
            yield context, columns.ids[token], columns.log_probs[token], columns.weights[token]


@given(credited_trees())
def test_path_samples_follow_from_it_exactly(case: CreditedTree) -> None:
    tree, credit = case
    expected = actor_records(tree, credit, packing="path")
    packed = actor_records(tree, credit, packing="tree")
    assert tuple(as_rows(packed)) == expected
    assert path_records(pack_tree(tree, credit)) == expected
    assert len(packed) == bool(expected)


@given(credited_trees())
def test_it_trains_the_same_ids_in_the_same_contexts(case: CreditedTree) -> None:
    tree, credit = case
    rows = actor_records(tree, credit)
    expected = Counter(
        (row.prefix + row.response[:at], row.response[at], row.log_probs[at], row.weights[at])
        for row in rows
        for at, mask in enumerate(row.loss_mask)
        if mask
    )
    assert Counter(trained(pack_tree(tree, credit))) == expected


@given(credited_trees())
def test_each_token_of_the_tree_stands_there_once(case: CreditedTree) -> None:
    tree, credit = case
    packed = pack_tree(tree, credit)
    columns = packed.columns()
    held: dict[int, TokenIds] = {}
    for token, node in zip(columns.ids, columns.edges, strict=True):
        held[node] = (*held.get(node, ()), token)
    for node in tree:
        ids = tree.header.prompt_ids if node.edge is None else node.edge.ids
        assert held.pop(node.id, ()) == ids + (node.rebased or ())
    assert not held
    assert packed.size == len(columns.ids)
    assert packed.trained_tokens == sum(columns.loss_mask)


@given(credited_trees())
def test_intervals_parents_and_positions_say_the_same(case: CreditedTree) -> None:
    columns = pack_tree(*case).columns()
    for token in range(len(columns.ids)):
        before = above(columns, token)
        assert before == [j for j in range(token) if token < columns.ends[j]]
        assert columns.positions[token] == len(before)


@given(credited_trees())
def test_tokens_are_shared_with_the_tree(case: CreditedTree) -> None:
    tree, credit = case
    spans = [span for node in tree.edges() for span in node.incoming.spans]
    known = {id(ids) for ids in (tree.header.prompt_ids, *(span.ids for span in spans))}
    known |= {id(node.rebased) for node in tree}
    packed = pack_tree(tree, credit)
    assert {id(segment.ids) for segment in packed.segments} <= known
    assert {id(segment.log_probs) for segment in packed.segments if segment.log_probs} <= {
        id(span.log_probs) for span in spans
    }


def test_by_hand() -> None:
    tree = build_tree(
        fork(0.5, fork(0.4, end(1.0, sampled=2), end(0.0), sampled=2, observed=1), end(1.0))
    )
    credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.2, 3: -0.2, 4: 0.4})
    (packed,) = actor_records(tree, credit, packing="tree")
    columns = packed.columns()
    assert packed.nodes == (1, 2, 3, 4)
    assert [segment.node for segment in packed.segments] == [0, 1, 1, 2, 3, 4]
    assert columns.parents == (-1, 0, 1, 2, 3, 4, 5, 6, 5, 2)
    assert columns.positions == (0, 1, 2, 3, 4, 5, 6, 7, 6, 3)
    assert columns.ends == (10, 10, 10, 9, 9, 9, 8, 8, 9, 10)
    assert columns.loss_mask == (0, 0, 0, 1, 1, 0, 1, 1, 1, 1)
    assert columns.weights == (0.0, 0.0, 0.0, 0.1, 0.1, 0.0, 0.2, 0.2, -0.2, 0.4)
    assert columns.segments == (0, 0, 0, 1, 1, 2, 3, 3, 4, 5)
    assert [edge.outcome for edge in packed.edges] == [0.5, 1.0, 0.0, 1.0]


def test_what_follows_a_fold_is_a_tree_of_its_own() -> None:
    tree = build_tree(fork(0.5))
    first = tree.attach(0, _edge((10, 11)), tree.root.payload, value=0.5)
    fold = tree.attach(first, _edge((20,)), tree.root.payload, value=0.5, rebased=(1, 99))
    tree.attach(fold, _edge((30,)), tree.root.payload, value=None, is_terminal=True)
    tree.attach(first, _edge((40,)), tree.root.payload, value=None, is_terminal=True)
    credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4})
    (packed,) = actor_records(tree, credit, packing="tree")
    assert packed.folds == (2,)
    assert [segment.ids for segment in packed.segments] == [
        (1, 2, 3),
        (10, 11),
        (20,),
        (40,),
        (1, 99),
        (30,),
    ]
    assert [segment.parent for segment in packed.segments] == [-1, 0, 1, 1, -1, 4]
    assert [segment.position for segment in packed.segments] == [0, 3, 5, 5, 0, 2]


def test_a_tree_without_credit_gives_no_record() -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    assert actor_records(tree, Credit(estimator="none", advantages={}), packing="tree") == ()


def test_a_deep_chain_needs_no_recursion() -> None:
    tree = build_tree(fork(0.5, chain([0.5] * 1_500, outcome=1.0)))
    credit = Credit(estimator="by hand", advantages=dict.fromkeys(range(1, len(tree)), 0.5))
    (packed,) = actor_records(tree, credit, packing="tree")
    assert packed.size == 3 + 1_501
    (row,) = path_records(packed)
    assert len(row.response) == 1_501


@pytest.mark.parametrize("name", PACKED_MUTANTS)
def test_each_way_to_spoil_one_is_refused(name: str) -> None:
    tree = build_tree(
        fork(0.5, fork(0.4, end(1.0, sampled=3), end(0.0, sampled=2)), end(1.0, sampled=2))
    )
    credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.2, 3: -0.2, 4: 0.4})
    (packed,) = actor_records(tree, credit, packing="tree")
    check_export((packed,), tree, credit)
    with pytest.raises(RecordError, match="drawn"):
        check_export((PACKED_MUTANTS[name](packed),), tree, credit)


def test_a_tree_that_is_packed_twice_is_trained_twice() -> None:
    tree = build_tree(fork(0.5, end(1.0), end(0.0)))
    credit = Credit(estimator="by hand", advantages={1: 0.5, 2: -0.5})
    (packed,) = actor_records(tree, credit, packing="tree")
    with pytest.raises(RecordError, match="twice"):
        check_export((packed, packed), tree, credit)


def test_an_id_that_nothing_conditions_cannot_be_trained() -> None:
    tree: Tree[Any] = build_tree(fork(0.5, end(1.0)), prompt_ids=())
    with pytest.raises(RecordError, match="I3"):
        actor_records(tree, Credit(estimator="by hand", advantages={1: 0.5}), packing="tree")


def _edge(ids: TokenIds) -> Edge:
    return Edge(
        spans=(Span(ids, (-0.5,) * len(ids)),),
        provenance=Provenance(expansion=0, index=0, phase=0, policy_version="policy-0"),
    )
