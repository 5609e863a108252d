"""Invariants of an actor record: read off the tree, never off the builder's notes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from focus.credit.base import Credit
from focus.records.records import ActorRecord
from focus.records.tree_invariants import (
    check_numbers,
    context_parts,
    fail,
    type_names,
    unmatched,
)
from focus.records.verified import Verified
from focus.tokens import LogProbs, Span
from focus.tree import Edge, NodeId, Tree

__all__ = ("check_actor_record",)


def check_actor_record(
    record: ActorRecord, tree: Tree[Any], credit: Credit, *, verified: Verified | None = None
) -> None:
    """One actor record against its tree, which `check_tree` has passed.

    Args:
        record: the sample.
        tree: where it comes from.
        credit: what gave its weights.
        verified: what checks of other records of the tree have read already.

    Raises:
        RecordError: naming problem, node, invariant and numbers.
    """
    verified = verified or Verified(tree)
    if record.source != verified.source:
        fail(tree, record.nodes, "I13", f"carries the identity {record.source}")
    _check_shape(record, tree)
    _check_types(record, tree, verified)
    _check_law(record, tree)
    lineage = _lineage(record, tree)
    _check_prefix(record, tree, lineage[0], verified)
    _check_response(record, tree, credit, lineage)
    _check_ending(record, tree, verified)


def _check_shape(record: ActorRecord, tree: Tree[Any]) -> None:
    nodes, size = record.nodes, len(record.response)
    columns = (record.loss_mask, record.log_probs, record.weights)
    if not size or any(len(column) != size for column in columns):
        detail = f"response of {size} ids; mask, log-probs, weights of {list(map(len, columns))}"
        fail(tree, nodes, "I2", detail)
    if not nodes or len(record.request_ids) != len(nodes):
        fail(tree, nodes, "I2", f"{len(record.request_ids)} request ids for {len(nodes)} nodes")
    limit, prefix = tree.header.context_limit, len(record.prefix)
    if limit is not None and prefix + size > limit:
        fail(tree, nodes, "I18", f"prefix {prefix} + response {size}, context limit {limit}")


def _check_types(record: ActorRecord, tree: Tree[Any], verified: Verified) -> None:
    """Values are compared with the tree's later, but 1 == True == 1.0 would pass there."""
    for name, values in (("prefix ids", record.prefix), ("response ids", record.response)):
        if not verified.are_ints(values):
            fail(tree, record.nodes, "I1", f"{name} of types {type_names(values)}")
    if not verified.are_ints(record.loss_mask):
        fail(tree, record.nodes, "I2", f"loss mask of types {type_names(record.loss_mask)}")
    if not verified.are_numbers(record.log_probs):
        fail(tree, record.nodes, "I6", f"log-probs of types {type_names(record.log_probs)}")
    if not verified.are_numbers(record.weights):
        fail(tree, record.nodes, "I11", f"weights of types {type_names(record.weights)}")


def _check_law(record: ActorRecord, tree: Tree[Any]) -> None:
    law = (record.temperature, record.top_p, record.top_k)
    if law != tree.header.sampling.law:
        expected = tree.header.sampling.law
        fail(tree, record.nodes, "I16", f"(temperature, top_p, top_k) {law}, tree {expected}")


def _lineage(record: ActorRecord, tree: Tree[Any]) -> list[NodeId]:
    """Every node from the record's first to its last one, which must all lie on one path."""
    nodes = record.nodes
    if min(nodes) <= 0 or max(nodes) >= len(tree):
        fail(tree, nodes, "I8", f"names an edge outside a tree of {len(tree)} nodes")
    lineage = [nodes[-1]]
    while lineage[-1] != nodes[0]:
        parent = tree[lineage[-1]].parent
        if parent is None or tree[parent].rebased is not None:
            fail(tree, nodes, "I8", f"node {lineage[-1]} does not extend node {nodes[0]}")
        lineage.append(parent)
    lineage.reverse()
    wanted = set(nodes)
    if [node for node in lineage if node in wanted] != list(nodes):
        fail(tree, nodes, "I8", f"its nodes are not on the one path {lineage}")
    return lineage


def _check_prefix(record: ActorRecord, tree: Tree[Any], first: NodeId, verified: Verified) -> None:
    if not record.prefix:
        fail(tree, record.nodes, "I3", "empty prefix: nothing conditions the first id")
    head = tree[first]
    assert head.parent is not None, "the lineage holds edges only"
    leading = _leading(head.incoming)
    if not leading and verified.is_context(record.prefix, head.parent):
        return
    own = (span.ids for span in reversed(leading))
    rest = unmatched(record.prefix, chain(own, context_parts(tree, head.parent)))
    if rest:
        detail = f"prefix of {len(record.prefix)} ids differs from the tree in its first {rest}"
        fail(tree, record.nodes, "I3", detail)
    if not leading:
        verified.add_context(record.prefix, head.parent)


def _leading(edge: Edge) -> Sequence[Span]:
    """Conditioning spans before the first sampled id."""
    for index, span in enumerate(edge.spans):
        if span.log_probs:
            return edge.spans[:index]
    return ()


def _check_response(
    record: ActorRecord, tree: Tree[Any], credit: Credit, lineage: Sequence[NodeId]
) -> None:
    trained = set(record.nodes)
    at = -sum(len(span.ids) for span in _leading(tree[lineage[0]].incoming))
    last_trained = 0
    for node in lineage:
        weight = credit.advantages.get(node) if node in trained else None
        if node in trained and weight is None:
            fail(tree, record.nodes, "I12", f"{credit.estimator} gives node {node} no advantage")
        for span in tree[node].incoming.spans:
            end = at + len(span.ids)
            if at >= 0 and at < len(record.response):
                _check_span(record, tree, slice(at, end), span, weight)
            if span.log_probs and weight is not None:
                last_trained = end
            at = end
    if last_trained != len(record.response):
        detail = f"response of {len(record.response)} ids, its edges hold {last_trained}"
        fail(tree, record.nodes, "I4", detail)


def _check_span(
    record: ActorRecord, tree: Tree[Any], part: slice, span: Span, weight: float | None
) -> None:
    where = f"at response positions {part.start} to {part.stop}"
    found = record.response[part]
    if found is not span.ids and found != span.ids:
        fail(tree, record.nodes, "I4", f"ids differ from the tree {where}")
    if weight is None or not span.log_probs:
        _check_masked(record, tree, part, where)
    else:
        _check_trained(record, tree, part, span.log_probs, weight, where)


def _check_masked(record: ActorRecord, tree: Tree[Any], part: slice, where: str) -> None:
    if any(record.loss_mask[part]):
        fail(tree, record.nodes, "I4", f"ids without credit are trained {where}")
    if any(record.log_probs[part]) or any(record.weights[part]):
        fail(tree, record.nodes, "I5", f"masked-out positions are not 0.0 {where}")


def _check_trained(
    record: ActorRecord,
    tree: Tree[Any],
    part: slice,
    log_probs: LogProbs,
    weight: float,
    where: str,
) -> None:
    size = len(log_probs)
    if record.loss_mask[part].count(1) != size:
        fail(tree, record.nodes, "I4", f"the mask of sampled ids is not 1 {where}")
    found = record.log_probs[part]
    if found is not log_probs and found != log_probs:
        check_numbers(tree, record.nodes, "I6", "log-prob", record.log_probs[part])
        fail(tree, record.nodes, "I4", f"log-probs differ from the reply {where}")
    if record.weights[part].count(weight) != size:
        check_numbers(tree, record.nodes, "I11", "weight", record.weights[part])
        fail(tree, record.nodes, "I12", f"weights differ from the advantage {weight} {where}")


def _check_ending(record: ActorRecord, tree: Tree[Any], verified: Verified) -> None:
    last = tree[record.nodes[-1]]
    if record.truncated is not last.is_truncated:
        detail = f"truncated={record.truncated}, the tree says {last.is_truncated}"
        fail(tree, record.nodes, "I14", detail)
    mean = verified.outcomes[last.id]
    if record.outcome != mean or isinstance(record.outcome, bool):
        fail(tree, record.nodes, "I17", f"outcome {record.outcome}, finished leaves give {mean}")
