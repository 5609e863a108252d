"""Invariants of a packed tree: read off the tree, never off the builder's notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from focus.credit.base import Credit
from focus.records.layout import Segment
from focus.records.outcomes import mean_outcomes
from focus.records.packed_tree import PackedTree
from focus.records.records import RecordKey
from focus.records.tree_invariants import NUMBERS, check_numbers, fail, has_types, type_names
from focus.tokens import LogProbs, Span, TokenIds
from focus.tree import Tree

__all__ = ("check_packed_tree", "misplaced")


def check_packed_tree(packed: PackedTree, tree: Tree[Any], credit: Credit) -> None:
    """One packed tree against its tree, which `check_tree` has passed.

    Linear in nodes, plus one comparison per token where the record does not share its
    tuples with the tree.

    Raises:
        RecordError: naming problem, node, invariant and numbers.
    """
    if packed.source != RecordKey.of(tree):
        fail(tree, packed.nodes, "I13", f"carries the identity {packed.source}")
    law = (packed.temperature, packed.top_p, packed.top_k)
    if law != tree.header.sampling.law:
        expected = tree.header.sampling.law
        fail(tree, (), "I16", f"(temperature, top_p, top_k) {law}, tree {expected}")
    _check_lineage(packed, tree)
    wrong = misplaced(packed.segments)
    if wrong is not None:
        fail(tree, (), "I20", wrong)
    _check_weights(packed.segments, tree)
    _check_segments(packed, tree, credit)
    _check_edges(packed, tree, credit)


def _check_lineage(packed: PackedTree, tree: Tree[Any]) -> None:
    columns = tree.columns
    if packed.lineage != tuple(columns.parents) or packed.folds != tuple(columns.contexts):
        fail(tree, (), "I8", f"{len(packed.lineage)} checkpoints in another lineage")


def misplaced(segments: Sequence[Segment]) -> str | None:
    """What is wrong with the places of some segments; None if they are one row, depth first.

    The intervals of a row are right if each segment begins where the one before it ends, if
    the innermost interval around it is that of its parent, and if it ends in there.

    >>> misplaced([Segment(0, 0, -1, 0, 2, (5,), (), 0.0), Segment(1, 1, 0, 1, 2, (6,), (), 0.0)])
    >>> misplaced([Segment(0, 0, -1, 0, 1, (5,), (), 0.0), Segment(1, 1, 0, 1, 2, (6,), (), 0.0)])
    'segment 1 stands behind segment -1, not 0'
    """
    at = 0
    around: list[int] = []
    for index, segment in enumerate(segments):
        if segment.start != at or not segment.ids:
            return (
                f"segment {index} of {len(segment.ids)} tokens starts at {segment.start}, not {at}"
            )
        at += len(segment.ids)
        while around and segments[around[-1]].end <= segment.start:
            around.pop()
        found = around[-1] if around else -1
        if found != segment.parent:
            return f"segment {index} stands behind segment {found}, not {segment.parent}"
        position, most = 0, segment.end
        if around:
            parent = segments[found]
            position, most = parent.position + len(parent.ids), parent.end
        if segment.position != position:
            return f"segment {index} has position {segment.position}, not {position}"
        if not at <= segment.end <= most:
            return f"segment {index} ends at {segment.end}, not between {at} and {most}"
        around.append(index)
    if any(segment.end > at for segment in segments):
        return f"a segment ends behind the row of {at} tokens"
    return None


def _check_segments(packed: PackedTree, tree: Tree[Any], credit: Credit) -> None:
    """Each run of tokens of the tree stands there once, behind what it was conditioned on."""
    segments, advantages = packed.segments, credit.advantages
    first, following = _by_node(segments, tree)
    columns = tree.columns
    contexts = {0: tree.header.prompt_ids, **columns.contexts}
    # One place more, the last: what the root, whose parent is −1, stands behind.
    last = [-1] * (len(tree) + 1)
    for node_id, (parent, spans) in enumerate(zip(columns.parents, columns.spans, strict=True)):
        index, weight, before = first[node_id], advantages.get(node_id), last[parent]
        for ids, log_probs, is_context in _runs(spans, contexts.get(node_id)):
            if index < 0:
                fail(tree, (node_id,), "I19", f"{len(ids)} of its tokens are missing")
            segment = segments[index]
            if segment.parent != (-1 if is_context else before):
                fail(tree, (node_id,), "I3", f"stands behind segment {segment.parent}")
            _check_run(tree, segment, ids, log_probs, weight)
            before, index = index, following[index]
        if index >= 0:
            fail(tree, (node_id,), "I19", "some of its tokens stand there twice")
        last[node_id] = -1 if contexts.get(node_id) == () else before


def _by_node(segments: Sequence[Segment], tree: Tree[Any]) -> tuple[list[int], list[int]]:
    """First segment of each node, and of each segment the next one of its node; −1 for none."""
    first, following = [-1] * len(tree), [-1] * len(segments)
    for index in range(len(segments) - 1, -1, -1):
        node_id = segments[index].node
        if not 0 <= node_id < len(first):
            fail(tree, (node_id,), "I19", f"edges outside a tree of {len(tree)} nodes")
        following[index] = first[node_id]
        first[node_id] = index
    return first, following


def _runs(
    spans: Sequence[Span], context: TokenIds | None
) -> Sequence[tuple[TokenIds, LogProbs, bool]]:
    """Tokens that a checkpoint adds: spans of its edge, then a context that starts with it."""
    runs = [(span.ids, span.log_probs or (), False) for span in spans if span.ids]
    if context:
        runs.append((context, (), True))
    return runs


def _check_weights(segments: Sequence[Segment], tree: Tree[Any]) -> None:
    weights = [segment.weight for segment in segments]
    if not (has_types(weights, NUMBERS) and math.isfinite(sum(weights))):
        for segment in segments:
            check_numbers(tree, (segment.node,), "I11", "weight", (segment.weight,))


def _check_run(
    tree: Tree[Any], segment: Segment, ids: TokenIds, log_probs: LogProbs, weight: float | None
) -> None:
    nodes = (segment.node,)
    if segment.ids is not ids:
        if not set(map(type, segment.ids)) <= {int}:
            fail(tree, nodes, "I1", f"token ids of types {type_names(segment.ids)}")
        if segment.ids != ids:
            fail(tree, nodes, "I4", f"ids at {segment.start} differ from the tree")
    expected = log_probs if weight is not None else ()
    if segment.log_probs is not expected:
        check_numbers(tree, nodes, "I6", "log-prob", segment.log_probs)
        if segment.log_probs != expected:
            fail(tree, nodes, "I4", f"log-probs at {segment.start} differ from the reply")
    wanted = weight if expected and weight is not None else 0.0
    if segment.weight is not wanted and segment.weight != wanted:
        fail(tree, nodes, "I12", f"weight {segment.weight}, its credit is {wanted}")
    if not expected:
        return
    if not segment.position:
        fail(tree, nodes, "I3", "empty prefix: nothing conditions the first id")
    limit = tree.header.context_limit
    if limit is not None and segment.position + len(ids) > limit:
        size = segment.position + len(ids)
        fail(tree, nodes, "I18", f"{size} tokens, context limit {limit}")


def _check_edges(packed: PackedTree, tree: Tree[Any], credit: Credit) -> None:
    """What belongs to a trained edge as a whole."""
    found, advantages = packed.nodes, credit.advantages
    for head in advantages:
        if not 0 < head < len(tree):
            fail(tree, (head,), "I10", f"{credit.estimator} gives credit to no edge of this tree")
    trained = tuple(node_id for node_id in tree.columns.trained if node_id in advantages)
    if found != trained:
        fail(tree, found, "I10", f"trains {len(found)} edges, {len(trained)} have credit")
    outcomes, nodes = mean_outcomes(tree), list(tree)
    for node_id, outcome, truncated, request_id in packed.edges:
        node = nodes[node_id]
        if truncated is not node.is_truncated:
            fail(tree, (node_id,), "I14", f"truncated={truncated}")
        if outcome != outcomes[node_id] or isinstance(outcome, bool):
            detail = f"outcome {outcome}, finished leaves give {outcomes[node_id]}"
            fail(tree, (node_id,), "I17", detail)
        if request_id != node.incoming.provenance.request_id:
            fail(tree, (node_id,), "I4", f"reply {request_id!r} is another edge's")
