"""From a packed tree back to path samples: what packing ``path`` makes of the same tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from focus.records.layout import Segment
from focus.records.packed_tree import PackedTree, PolicyRecord, TrainedEdge
from focus.records.records import ActorRecord
from focus.tree import NodeId

__all__ = ("as_rows", "path_records")

T = TypeVar("T")


def as_rows(records: Iterable[PolicyRecord]) -> list[ActorRecord]:
    """Records of any packing as rows, for a trainer that reads rows only."""
    rows: list[ActorRecord] = []
    for record in records:
        rows += path_records(record) if isinstance(record, PackedTree) else (record,)
    return rows


def path_records(packed: PackedTree) -> tuple[ActorRecord, ...]:
    """The records of ``actor_records(tree, credit, packing="path")``, without tree or credit.

    >>> from focus.credit.base import Credit
    >>> from focus.records.packed_tree import pack_tree
    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
    >>> credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.25, 3: -0.25})
    >>> for record in path_records(pack_tree(tree, credit)):
    ...     print(record.prefix, record.response, record.weights)
    (1, 2, 3) (100, 101) (0.1, 0.25)
    (1, 2, 3, 100) (102,) (-0.25,)
    """
    trained: dict[NodeId, list[int]] = {}
    for index, segment in enumerate(packed.segments):
        if segment.log_probs:
            trained.setdefault(segment.node, []).append(index)
    edges = {edge.node: edge for edge in packed.edges}
    records = []
    for piece in _pieces(packed):
        held = [edges[node] for node in piece if node in edges]
        if held:
            first, last = trained[held[0].node][0], trained[held[-1].node][-1]
            records.append(_record(packed, held, first, last))
    return tuple(records)


def _pieces(packed: PackedTree) -> Iterator[list[NodeId]]:
    """The part of each root-to-leaf path that no earlier path holds, cut after folds."""
    inner, folds, claimed = set(packed.lineage), set(packed.folds), {0}
    for leaf in range(1, len(packed.lineage)):
        if leaf in inner:
            continue
        fresh: list[NodeId] = []
        current = leaf
        while current not in claimed:
            claimed.add(current)
            fresh.append(current)
            current = packed.lineage[current]
        piece: list[NodeId] = []
        for node in reversed(fresh):
            piece.append(node)
            if node in folds:
                yield piece
                piece = []
        yield piece


def _record(packed: PackedTree, edges: Sequence[TrainedEdge], first: int, last: int) -> ActorRecord:
    """The record that trains from one segment to another one below it."""
    path = _path(packed.segments, last)
    begin = next(at for at, segment in enumerate(path) if segment is packed.segments[first])
    row = path[begin:]
    return ActorRecord(
        source=packed.source,
        nodes=tuple(edge.node for edge in edges),
        prefix=_joined([segment.ids for segment in path[:begin]]),
        response=_joined([segment.ids for segment in row]),
        loss_mask=_joined([(int(bool(s.log_probs)),) * len(s.ids) for s in row]),
        log_probs=_joined([s.log_probs or (0.0,) * len(s.ids) for s in row]),
        weights=_joined([(segment.weight,) * len(segment.ids) for segment in row]),
        outcome=edges[-1].outcome,
        truncated=edges[-1].truncated,
        temperature=packed.temperature,
        top_p=packed.top_p,
        top_k=packed.top_k,
        request_ids=tuple(edge.request_id for edge in edges),
    )


def _path(segments: Sequence[Segment], last: int) -> list[Segment]:
    """Segments from the beginning of a context to `last`."""
    path = []
    current = last
    while current >= 0:
        path.append(segments[current])
        current = segments[current].parent
    return path[::-1]


def _joined(parts: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))
