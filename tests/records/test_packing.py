"""Both packings into rows train the same ids under the same contexts, each of them once."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given

from focus.credit.base import Credit
from focus.errors import ConfigError
from focus.records import ActorRecord, RowPacking, actor_records
from focus.testing.trees import build_tree, chain, end, fork
from focus.tokens import Span, TokenIds
from focus.tree import Edge, Provenance, Tree

from .strategies import VOCABULARY, credited_trees, random_credit, random_tree

CreditedTree = tuple[Tree[None], Credit]
Trained = tuple[TokenIds, int, float, float]
PACKINGS: tuple[RowPacking, ...] = ("segment", "path")


def trained(record: ActorRecord) -> Iterator[Trained]:
    """(context, id, behaviour log-prob, weight) of each trained position."""
    tokens = record.tokens
    for position, mask in enumerate(record.loss_mask):
        if mask:
            at = len(record.prefix) + position
            yield tokens[:at], tokens[at], record.log_probs[position], record.weights[position]


def trained_of_tree(tree: Tree[None], credit: Credit) -> Iterator[Trained]:
    """The same, read off the tree edge by edge without any packing."""
    for node in tree.edges():
        weight = credit.advantages.get(node.id)
        if weight is None:
            continue
        assert node.parent is not None
        context = tree.context(node.parent)
        for span in node.incoming.spans:
            if span.log_probs is not None:
                for offset, value in enumerate(span.log_probs):
                    yield context + span.ids[:offset], span.ids[offset], value, weight
            context += span.ids


def all_trained(records: Iterable[ActorRecord]) -> Counter[Trained]:
    return Counter(itertools.chain.from_iterable(map(trained, records)))


@given(credited_trees())
def test_each_packing_trains_exactly_the_ids_that_have_credit(case: CreditedTree) -> None:
    tree, credit = case
    expected = Counter(trained_of_tree(tree, credit))
    for packing in PACKINGS:
        assert all_trained(actor_records(tree, credit, packing=packing)) == expected


@given(credited_trees())
def test_each_edge_is_trained_in_one_record(case: CreditedTree) -> None:
    tree, credit = case
    with_ids = {node for node in credit.advantages if tree[node].incoming.sampled_tokens}
    for packing in PACKINGS:
        records = actor_records(tree, credit, packing=packing)
        nodes = [node for record in records for node in record.nodes]
        assert len(nodes) == len(set(nodes))
        assert set(nodes) == with_ids


@given(credited_trees())
def test_tokens_are_the_beginning_of_a_context_of_the_tree(case: CreditedTree) -> None:
    tree, credit = case
    for packing in PACKINGS:
        for record in actor_records(tree, credit, packing=packing):
            parent = tree[record.nodes[-1]].parent
            assert parent is not None
            whole = tree.context(parent) + tree[record.nodes[-1]].incoming.ids
            assert record.tokens == whole[: len(record.tokens)]
            assert record.loss_mask[0] == record.loss_mask[-1] == 1


@given(credited_trees())
def test_paths_never_emit_more_tokens_than_segments(case: CreditedTree) -> None:
    tree, credit = case
    emitted = {
        packing: sum(len(r.tokens) for r in actor_records(tree, credit, packing=packing))
        for packing in PACKINGS
    }
    assert emitted["path"] <= emitted["segment"]


@given(credited_trees())
def test_a_record_never_runs_across_a_fold(case: CreditedTree) -> None:
    tree, credit = case
    for record in actor_records(tree, credit, packing="path"):
        path = tree.path(record.nodes[-1])
        inner = path[path.index(record.nodes[0]) : -1]
        assert all(tree[node].rebased is None for node in inner)


def test_what_follows_a_fold_starts_from_the_folded_context() -> None:
    tree = build_tree(fork(0.5))
    first = tree.attach(0, _edge((10, 11)), tree.root.payload, value=0.5)
    fold = tree.attach(first, _edge((20,)), tree.root.payload, value=0.5, rebased=(1, 99))
    tree.attach(fold, _edge((30,)), tree.root.payload, value=None, is_terminal=True)
    credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.2, 3: 0.3})
    before, after = actor_records(tree, credit, packing="path")
    assert (before.prefix, before.response) == ((1, 2, 3), (10, 11, 20))
    assert (after.prefix, after.response) == ((1, 99), (30,))


def test_observations_inside_a_path_are_masked_and_those_after_it_are_dropped() -> None:
    tree = build_tree(fork(0.5, chain([0.5], outcome=1.0, sampled=2, observed=1)))
    credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.2})
    [record] = actor_records(tree, credit, packing="path")
    assert record.response == (100, 101, 102, 103, 104)
    assert record.loss_mask == (1, 1, 0, 1, 1)
    assert record.weights == (0.1, 0.1, 0.0, 0.2, 0.2)
    assert record.log_probs[2] == 0.0


def test_an_edge_without_credit_conditions_but_is_not_trained() -> None:
    tree = build_tree(fork(0.5, chain([0.5, 0.5], outcome=1.0)))
    credit = Credit(estimator="by hand", advantages={1: 0.1, 3: 0.3})
    [record] = actor_records(tree, credit, packing="path")
    assert record.nodes == (1, 3)
    assert record.loss_mask == (1, 0, 1)


def test_a_zero_advantage_keeps_its_record() -> None:
    tree = build_tree(fork(0.5, end(1.0), end(1.0)))
    credit = Credit(estimator="by hand", advantages={1: 0.0, 2: 0.0})
    assert [record.advantage for record in actor_records(tree, credit)] == [0.0, 0.0]


def test_no_id_is_invented_for_a_reply_that_was_cut_by_length() -> None:
    tree = build_tree(fork(0.5, fork(0.5, sampled=256)))
    [record] = actor_records(tree, Credit(estimator="by hand", advantages={1: 1.0}))
    assert record.response == tree[1].incoming.ids
    assert sum(record.loss_mask) == len(record.response) == len(record.log_probs) == 256


def test_a_long_prefix_is_kept_whole() -> None:
    tree = build_tree(fork(0.5, end(1.0, sampled=12)), prompt_ids=range(5_000))
    [record] = actor_records(tree, Credit(estimator="by hand", advantages={1: 1.0}))
    assert len(record.tokens) == 5_012
    assert record.prefix == tuple(range(5_000))


def test_outcome_is_the_mean_of_finished_leaves_and_apart_from_the_weight() -> None:
    tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0), fork(0.5)), fork(0.5)))
    credit = Credit(estimator="by hand", advantages=dict.fromkeys(range(1, 6), -0.25))
    outcomes = {record.nodes: record.outcome for record in actor_records(tree, credit)}
    assert outcomes == {(1,): 0.5, (2,): 1.0, (3,): 0.0, (4,): None, (5,): None}


def test_truncated_marks_only_the_record_that_ends_in_the_leaf() -> None:
    tree = build_tree(fork(0.5, fork(0.5, end(0.0, truncated=True), end(1.0))))
    credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.2, 3: 0.3})
    assert [r.truncated for r in actor_records(tree, credit)] == [False, True, False]
    assert [r.truncated for r in actor_records(tree, credit, packing="path")] == [True, False]


def test_siblings_share_one_prefix_object() -> None:
    tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
    records = actor_records(tree, Credit(estimator="by hand", advantages={2: 0.2, 3: 0.3}))
    assert records[0].prefix is records[1].prefix


def test_an_unknown_packing_is_refused() -> None:
    tree = build_tree(fork(0.5))
    unknown: Any = "box"
    with pytest.raises(ConfigError, match="box"):
        actor_records(tree, Credit(estimator="none", advantages={}), packing=unknown)


def test_a_deep_chain_needs_no_recursion() -> None:
    tree = build_tree(fork(0.5, chain([0.5] * 1_500, outcome=1.0)))
    credit = Credit(estimator="by hand", advantages=dict.fromkeys(range(1, len(tree)), 0.5))
    [record] = actor_records(tree, credit, packing="path")
    assert len(record.response) == 1_501


CLIP = 0.2


def loss_and_gradient(
    records: Iterable[ActorRecord], seed: int
) -> tuple[float, dict[tuple[TokenIds, int], float], Counter[str]]:
    """Clipped surrogate of a softmax over one logit per (context, id), and its gradient."""
    loss, sides = 0.0, Counter[str]()
    gradient: defaultdict[tuple[TokenIds, int], float] = defaultdict(float)
    for context, token, behaviour, weight in itertools.chain.from_iterable(map(trained, records)):
        logits = _logits(context, seed)
        log_total = math.log(sum(map(math.exp, logits)))
        ratio = math.exp(logits[token] - log_total - behaviour)
        clipped = min(max(ratio, 1 - CLIP), 1 + CLIP)
        loss -= min(ratio * weight, clipped * weight)
        sides["low" if ratio < 1 - CLIP else "high" if ratio > 1 + CLIP else "inside"] += 1
        if ratio * weight <= clipped * weight:
            for other, logit in enumerate(logits):
                step = (other == token) - math.exp(logit - log_total)
                gradient[context, other] -= weight * ratio * step
    return loss, gradient, sides


def _logits(context: TokenIds, seed: int) -> list[float]:
    rng = random.Random(f"{seed} {context}")
    return [rng.gauss(0, 1) for _ in range(VOCABULARY)]


@pytest.mark.parametrize("seed", range(20))
def test_packing_changes_neither_the_loss_nor_its_gradient(seed: int) -> None:
    """Rule 5.7: float64, ratios off 1, both sides of the clip."""
    rng = random.Random(seed)
    tree = random_tree(rng, nodes=40)
    credit = random_credit(tree, rng)
    results = [
        loss_and_gradient(actor_records(tree, credit, packing=packing), seed)
        for packing in PACKINGS
    ]
    (loss, gradient, sides), (other_loss, other_gradient, other_sides) = results
    assert sides == other_sides
    assert sides.keys() == {"low", "inside", "high"}
    assert loss == pytest.approx(other_loss, abs=1e-9)
    assert gradient.keys() == other_gradient.keys()
    largest = max(map(abs, gradient.values()))
    assert all(abs(gradient[k] - other_gradient[k]) <= 1e-9 * largest for k in gradient)


def _edge(ids: TokenIds) -> Edge:
    return Edge(
        spans=(Span(ids, (-0.5,) * len(ids)),),
        provenance=Provenance(expansion=0, index=0, phase=0, policy_version="policy-0"),
    )
