"""From a credited tree to the policy's training samples, in one of three packings.

``segment``: one record per trained edge, with its full prefix. ``path``: one record per
root-to-leaf path; a trained edge is trained in the first path (leaves in attach order)
that holds it and conditions the later ones. Two paths share nothing but their
beginning, so what a path trains is its end, and its record is the context of the first
trained id followed by everything up to the last one, with mask 0 on observations and on
edges without credit. A fold (`Node.rebased`) ends a record: what follows is conditioned
on another context and cannot stand in the same row. ``tree``: one `PackedTree` with all of a
tree's tokens, each once, for learners with tree attention.

All packings hold the same (context, id, log-prob, weight) once each, so every loss that
is a sum over trained tokens has the same value and gradient under each.

An edge whose advantage is exactly 0 keeps its record: it adds nothing to the sum, but
counts of trained tokens, the clip fraction and the divergence from the behaviour policy
stay those of the whole tree. A trainer may drop it; an export may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar, overload

from focus._values import filled
from focus.credit.base import Credit
from focus.errors import ConfigError
from focus.records.invariants import check_export
from focus.records.outcomes import mean_outcomes
from focus.records.packed_tree import PackedTree, PolicyRecord, pack_tree
from focus.records.records import ActorRecord, RecordKey
from focus.tokens import LogProbs, Span, TokenIds
from focus.tree import NodeId, Tree

__all__ = ("PACKINGS", "Packing", "RowPacking", "actor_records")

RowPacking = Literal["segment", "path"]
"""Packings whose records are rows: a prefix and a response."""

Packing = RowPacking | Literal["tree"]

PACKINGS: tuple[Packing, ...] = ("segment", "path", "tree")

T = TypeVar("T")

_record = filled(ActorRecord)


@overload
def actor_records(
    tree: Tree[Any], credit: Credit, *, packing: RowPacking = ...
) -> tuple[ActorRecord, ...]: ...
@overload
def actor_records(
    tree: Tree[Any], credit: Credit, *, packing: Literal["tree"]
) -> tuple[PackedTree, ...]: ...
@overload
def actor_records(
    tree: Tree[Any], credit: Credit, *, packing: Packing
) -> tuple[PolicyRecord, ...]: ...


def actor_records(
    tree: Tree[Any], credit: Credit, *, packing: Packing = "segment"
) -> tuple[PolicyRecord, ...]:
    """Samples for the policy's trainer, each checked against the tree.

    Linear in the tokens of the tree plus those emitted.

    Args:
        tree: a settled tree.
        credit: one weight per edge to train, by head node; other edges are not trained.
        packing: ``"segment"``, ``"path"`` or ``"tree"``.

    Raises:
        ConfigError: an unknown packing.
        RecordError: a sample breaks an invariant; no sample is returned.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
    >>> credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.25, 3: -0.25})
    >>> [(r.prefix, r.response) for r in actor_records(tree, credit)]
    [((1, 2, 3), (100,)), ((1, 2, 3, 100), (101,)), ((1, 2, 3, 100), (102,))]
    >>> [(r.prefix, r.response) for r in actor_records(tree, credit, packing="path")]
    [((1, 2, 3), (100, 101)), ((1, 2, 3, 100), (102,))]
    >>> [packed.columns().ids for packed in actor_records(tree, credit, packing="tree")]
    [(1, 2, 3, 100, 101, 102)]
    """
    if packing == "tree":
        return _packed(tree, credit)
    if packing == "segment":
        pieces: Iterator[list[NodeId]] = ([node.id] for node in tree.edges())
    elif packing == "path":
        pieces = _path_pieces(tree)
    else:
        raise ConfigError(f"packing must be 'segment', 'path' or 'tree', got {packing!r}")
    builder = _Builder(tree, credit)
    records = tuple(record for piece in pieces if (record := builder.record(piece)) is not None)
    check_export(records, tree, credit)
    return records


def _packed(tree: Tree[Any], credit: Credit) -> tuple[PackedTree, ...]:
    """The tree as one record, checked; none where nothing is trained."""
    packed = pack_tree(tree, credit)
    records = (packed,) if packed.edges else ()
    check_export(records, tree, credit)
    return records


def _path_pieces(tree: Tree[Any]) -> Iterator[list[NodeId]]:
    """The part of each root-to-leaf path that no earlier path holds, cut after folds."""
    claimed = {tree.root.id}
    for leaf in tree.leaves():
        fresh: list[NodeId] = []
        current = leaf
        while current not in claimed:
            claimed.add(current)
            fresh.append(current)
            current = _parent(tree, current)
        piece: list[NodeId] = []
        for node_id in reversed(fresh):
            piece.append(node_id)
            if tree[node_id].rebased is not None:
                yield piece
                piece = []
        yield piece


class _Builder:
    """Makes one record per piece: a run of edges, each below the one before."""

    def __init__(self, tree: Tree[Any], credit: Credit) -> None:
        self._nodes = list(tree)
        self._weights = credit.advantages
        self._source = RecordKey.of(tree)
        self._law = tree.header.sampling.law
        self._contexts = _Contexts(tree)
        self._outcomes = mean_outcomes(tree)

    def record(self, piece: Sequence[NodeId]) -> ActorRecord | None:
        """None when the piece has nothing to train."""
        row = _Row()
        for node_id in piece:
            row.add_edge(node_id, self._nodes[node_id].incoming.spans, self._weights.get(node_id))
        if not row.nodes:
            return None
        ids, mask, log_probs, weights = zip(*row.parts, strict=True)
        last = self._nodes[row.nodes[-1]]
        temperature, top_p, top_k = self._law
        return _record(
            source=self._source,
            nodes=tuple(row.nodes),
            prefix=_joined([self._contexts.of(self._nodes[piece[0]].parent or 0), *row.lead]),
            response=_joined(ids),
            loss_mask=_joined(mask),
            log_probs=_joined(log_probs),
            weights=_joined(weights),
            outcome=self._outcomes[last.id],
            truncated=last.is_truncated,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            request_ids=tuple(
                [self._nodes[node_id].incoming.provenance.request_id for node_id in row.nodes]
            ),
        )


class _Part(NamedTuple):
    """Aligned columns of one span."""

    ids: TokenIds
    mask: tuple[int, ...]
    log_probs: LogProbs
    weights: tuple[float, ...]

    @classmethod
    def trained(cls, ids: TokenIds, log_probs: LogProbs, weight: float) -> _Part:
        return cls(ids, _ones(len(ids)), log_probs, (weight,) * len(ids))

    @classmethod
    def masked(cls, ids: TokenIds) -> _Part:
        zeros = (0.0,) * len(ids)
        return cls(ids, (0,) * len(ids), zeros, zeros)


@lru_cache(maxsize=64)
def _ones(size: int) -> tuple[int, ...]:
    """One tuple for all spans of a size: segments of a search are mostly equally long."""
    return (1,) * size


class _Row:
    """One piece, from the end of its parent's context on.

    What stands before the first trained span conditions it and joins the prefix; what
    stands after the last one conditions nothing here and is dropped.
    """

    def __init__(self) -> None:
        self.nodes: list[NodeId] = []
        self.lead: list[TokenIds] = []
        self.parts: list[_Part] = []
        self._waiting: list[_Part] = []

    def add_edge(self, node_id: NodeId, spans: Sequence[Span], weight: float | None) -> None:
        before = len(self.parts)
        for span in spans:
            if weight is None or not span.log_probs:
                self._waiting.append(_Part.masked(span.ids))
            else:
                self._train(_Part.trained(span.ids, span.log_probs, weight))
        if len(self.parts) > before:
            self.nodes.append(node_id)

    def _train(self, part: _Part) -> None:
        if self.parts:
            self.parts += self._waiting
        else:
            self.lead = [waiting.ids for waiting in self._waiting]
        self._waiting = []
        self.parts.append(part)


def _joined(parts: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """One tuple; a single part is shared, not copied."""
    if len(parts) == 1:
        return parts[0]
    joined: list[T] = []
    for part in parts:
        joined += part
    return tuple(joined)


class _Contexts:
    """Contexts by node; a context asked for twice is one tuple, shared by siblings."""

    def __init__(self, tree: Tree[Any]) -> None:
        self._tree = tree
        self._known: dict[NodeId, TokenIds] = {tree.root.id: tree.header.prompt_ids}

    def of(self, node_id: NodeId) -> TokenIds:
        parts: list[TokenIds] = []
        current = node_id
        while (known := self._known.get(current)) is None:
            node = self._tree[current]
            if node.rebased is not None:
                known = node.rebased
                break
            parts.append(node.incoming.ids)
            current = _parent(self._tree, current)
        context = _joined([known, *reversed(parts)])
        self._known[node_id] = context
        return context


def _parent(tree: Tree[Any], node_id: NodeId) -> NodeId:
    parent = tree[node_id].parent
    assert parent is not None, "only the root has no parent, and no edge leads to it"
    return parent
