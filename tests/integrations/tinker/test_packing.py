"""Path packing changes what is billed, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import given, settings
from tests.records.strategies import credited_trees

from focus.credit.base import Credit
from focus.integrations.tinker import PathRow, pack_paths
from focus.records import ActorRecord, Packing, actor_records
from focus.testing.trees import build_tree, chain
from focus.tree import Tree

CreditedTree = tuple[Tree[None], Credit]
PACKINGS: tuple[Packing, ...] = ("segment", "path")


def of_records(records: Iterable[ActorRecord]) -> Iterator[tuple[Any, ...]]:
    """(context, id, log-prob, weight) of what moves the weights."""
    for record in records:
        for offset, mask in enumerate(record.loss_mask):
            at = len(record.prefix) + offset
            if mask and record.weights[offset]:
                ids = record.tokens
                yield ids[:at], ids[at], record.log_probs[offset], record.weights[offset]


def of_rows(rows: Iterable[PathRow]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        for at, weight in enumerate(row.weights):
            if weight:
                yield row.tokens[:at], row.tokens[at], row.log_probs[at], weight


def billed(rows: Iterable[PathRow]) -> int:
    return sum(len(row.tokens) - 1 for row in rows)


@given(credited_trees())
def test_rows_train_what_the_records_train(case: CreditedTree) -> None:
    tree, credit = case
    for packing in PACKINGS:
        records = actor_records(tree, credit, packing=packing)
        assert Counter(of_rows(pack_paths(records))) == Counter(of_records(records))


@given(credited_trees())
def test_conditioning_is_zero_and_the_first_token_is_never_trained(case: CreditedTree) -> None:
    for row in pack_paths(actor_records(*case)):
        assert row.trained
        assert min(row.trained) >= 1
        for place, columns in enumerate(zip(row.log_probs, row.weights, strict=True)):
            assert place in row.trained or columns == (0.0, 0.0)


@settings(max_examples=300)
@given(credited_trees(folds=False))
def test_exact_prefixes_are_billed_at_most_one_datum_per_path(case: CreditedTree) -> None:
    tree, credit = case
    bound = sum(len(tree.context(leaf)) - 1 for leaf in tree.leaves())
    for packing in PACKINGS:
        assert billed(pack_paths(actor_records(tree, credit, packing=packing))) <= 1.05 * bound


def test_a_long_solution_costs_its_length_not_its_square() -> None:
    """16 segments of 256 tokens: the figures of the tutorial."""
    tree = build_tree(chain([0.5] * 16, outcome=1.0, sampled=256))
    credit = Credit(estimator="by hand", advantages={node.id: 0.5 for node in tree.edges()})
    prompt = len(tree.header.prompt_ids)
    records = actor_records(tree, credit, packing="segment")
    assert sum(len(record.tokens) - 1 for record in records) == 16 * prompt + 34_816 - 16
    [row] = pack_paths(records)
    assert len(row.tokens) - 1 == prompt + 4_096 - 1


def test_what_follows_the_last_weight_is_not_sent() -> None:
    tree = build_tree(chain([0.5] * 3, outcome=1.0))
    credit = Credit(estimator="by hand", advantages={1: 0.5, 2: 0.0, 3: 0.0})
    for packing in PACKINGS:
        [row] = pack_paths(actor_records(tree, credit, packing=packing))
        assert row.tokens == tree.context(1)


def test_nothing_to_train_is_nothing_to_send() -> None:
    tree = build_tree(chain([0.5], outcome=1.0))
    credit = Credit(estimator="by hand", advantages={1: 0.0})
    assert pack_paths(actor_records(tree, credit)) == []
