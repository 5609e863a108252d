"""Invariants of a packed tree: read off the tree, never off the builder's notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from focus.credit.base import Credit
from focus.records.layout import Segment
from focus.records.outcomes import mean_outcomes
from focus.records.packed_tree import PackedTree
from focus.records.records import RecordKey
from focus.records.tree_invariants import check_numbers, fail, type_names
from focus.tokens import LogProbs, TokenIds
from focus.tree import NodeId, Tree

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
    _check_segments(packed, tree, credit)
    _check_edges(packed, tree, credit)


def _check_lineage(packed: PackedTree, tree: Tree[Any]) -> None:
    lineage = tuple(-1 if node.parent is None else node.parent for node in tree)
    folds = tuple(node.id for node in tree if node.rebased is not None)
    if packed.lineage != lineage or packed.folds != folds:
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
    found: dict[NodeId, list[int]] = {}
    for index, segment in enumerate(packed.segments):
        found.setdefault(segment.node, []).append(index)
    last = [-1] * len(tree)
    for node in tree:
        weight = credit.advantages.get(node.id)
        before = -1 if node.parent is None else last[node.parent]
        indices = iter(found.pop(node.id, ()))
        for ids, log_probs, is_context in _runs(tree, node.id):
            index = next(indices, -1)
            if index < 0:
                fail(tree, (node.id,), "I19", f"{len(ids)} of its tokens are missing")
            segment = packed.segments[index]
            if segment.parent != (-1 if is_context else before):
                fail(tree, (node.id,), "I3", f"stands behind segment {segment.parent}")
            _check_run(tree, segment, ids, log_probs, weight)
            before = index
        if next(indices, -1) >= 0:
            fail(tree, (node.id,), "I19", "some of its tokens stand there twice")
        last[node.id] = -1 if node.rebased == () else before
    if found:
        fail(tree, list(found), "I19", f"edges outside a tree of {len(tree)} nodes")


def _runs(tree: Tree[Any], node_id: NodeId) -> Iterator[tuple[TokenIds, LogProbs, bool]]:
    """Tokens that a checkpoint adds: spans of its edge, then a context that starts with it."""
    node = tree[node_id]
    if node.edge is None:
        if tree.header.prompt_ids:
            yield tree.header.prompt_ids, (), True
        return
    for span in node.edge.spans:
        if span.ids:
            yield span.ids, span.log_probs or (), False
    if node.rebased:
        yield node.rebased, (), True


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
    check_numbers(tree, nodes, "I11", "weight", (segment.weight,))
    if segment.weight != wanted:
        fail(tree, nodes, "I12", f"weight {segment.weight}, its credit is {wanted}")
    if not expected:
        return
    if not segment.position:
        fail(tree, nodes, "I3", "empty prefix: nothing conditions the first id")
    limit, size = tree.header.context_limit, segment.position + len(segment.ids)
    if limit is not None and size > limit:
        fail(tree, nodes, "I18", f"{size} tokens, context limit {limit}")


def _check_edges(packed: PackedTree, tree: Tree[Any], credit: Credit) -> None:
    """What belongs to a trained edge as a whole."""
    nodes = packed.nodes
    for head in credit.advantages:
        if not 0 < head < len(tree):
            fail(tree, (head,), "I10", f"{credit.estimator} gives credit to no edge of this tree")
    trained = [
        node.id
        for node in tree.edges()
        if node.id in credit.advantages and node.incoming.sampled_tokens
    ]
    if list(nodes) != trained:
        fail(tree, nodes, "I10", f"trains {len(nodes)} edges, {len(trained)} have credit")
    outcomes = mean_outcomes(tree)
    for edge in packed.edges:
        node = tree[edge.node]
        if edge.truncated is not node.is_truncated:
            fail(tree, (node.id,), "I14", f"truncated={edge.truncated}")
        if edge.outcome != outcomes[node.id] or isinstance(edge.outcome, bool):
            detail = f"outcome {edge.outcome}, finished leaves give {outcomes[node.id]}"
            fail(tree, (node.id,), "I17", detail)
        if edge.request_id != node.incoming.provenance.request_id:
            fail(tree, (node.id,), "I4", f"reply {edge.request_id!r} is another edge's")
