"""Packed trees as plain JSON values and back; reading is strict, as in `focus.records.codec`."""

from __future__ import annotations

from typing import Any

from focus.errors import SchemaError
from focus.records.codec import decode_source, encode_actor, encode_source, opened
from focus.records.layout import Segment
from focus.records.packed_invariants import misplaced
from focus.records.packed_tree import PackedTree, PolicyRecord, TrainedEdge
from focus.records.strict_json import Fields

__all__ = ("PACKED_SCHEMA", "decode_packed", "encode_packed", "encode_sample")

PACKED_SCHEMA = "focus.packed/1"


def encode_packed(packed: PackedTree) -> dict[str, Any]:
    """A packed tree as JSON; floats keep their bits, and the root is left out of its lineage.

    Raises:
        RecordError: its identity is not text and whole numbers.
    """
    return {
        "schema": PACKED_SCHEMA,
        **encode_source(packed.source),
        "segments": [_encode_segment(segment) for segment in packed.segments],
        "lineage": list(packed.lineage[1:]),
        "folds": list(packed.folds),
        "edges": [edge._asdict() for edge in packed.edges],
        "temperature": packed.temperature,
        "top_p": packed.top_p,
        "top_k": packed.top_k,
    }


def encode_sample(record: PolicyRecord) -> dict[str, Any]:
    """A record of any packing as JSON; its schema says which it is.

    Raises:
        RecordError: its identity is not text and whole numbers.
    """
    return encode_packed(record) if isinstance(record, PackedTree) else encode_actor(record)


def _encode_segment(segment: Segment) -> dict[str, Any]:
    return {
        **segment._asdict(),
        "ids": list(segment.ids),
        "log_probs": list(segment.log_probs),
    }


def decode_packed(value: Any, *, where: str = "packed tree") -> PackedTree:
    """Inverse of `encode_packed`.

    Raises:
        SchemaError: another schema, shape or type, or segments that are no row of a tree.
    """
    fields = opened(value, schema=PACKED_SCHEMA, where=where)
    packed = PackedTree(
        source=decode_source(fields),
        segments=tuple(
            _decode_segment(item, f"{where}, segment {index}")
            for index, item in enumerate(fields.items("segments"))
        ),
        lineage=(-1, *fields.integers("lineage")),
        folds=fields.integers("folds"),
        edges=tuple(
            _decode_edge(item, f"{where}, edge {index}")
            for index, item in enumerate(fields.items("edges"))
        ),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        top_k=fields.optional_integer("top_k"),
    )
    fields.done()
    wrong = misplaced(packed.segments) or _unaligned(packed)
    if wrong is not None:
        raise SchemaError(f"{where}: {wrong}")
    return packed


def _decode_segment(value: Any, where: str) -> Segment:
    fields = Fields(value, where=where)
    segment = Segment(
        node=fields.integer("node"),
        start=fields.integer("start"),
        parent=fields.integer("parent", least=-1),
        position=fields.integer("position"),
        end=fields.integer("end"),
        ids=fields.integers("ids"),
        log_probs=fields.numbers("log_probs"),
        weight=fields.number("weight"),
    )
    fields.done()
    return segment


def _decode_edge(value: Any, where: str) -> TrainedEdge:
    fields = Fields(value, where=where)
    edge = TrainedEdge(
        node=fields.integer("node"),
        outcome=fields.optional_number("outcome"),
        truncated=fields.flag("truncated"),
        request_id=fields.text("request_id"),
    )
    fields.done()
    return edge


def _unaligned(packed: PackedTree) -> str | None:
    """What keeps the parts of a record from speaking of one tree; None if nothing does."""
    size = len(packed.lineage)
    if any(above >= node for node, above in enumerate(packed.lineage)):
        return "lineage: a checkpoint continues a later one"
    named = (*packed.folds, *packed.nodes, *(segment.node for segment in packed.segments))
    if named and max(named) >= size:
        return f"node {max(named)} outside a tree of {size} checkpoints"
    if any(len(segment.log_probs) not in (0, len(segment.ids)) for segment in packed.segments):
        return "log-probs of a segment are neither absent nor one per id"
    trained = {segment.node for segment in packed.segments if segment.log_probs}
    if tuple(sorted(trained)) != packed.nodes or 0 in trained:
        return "edges are not those of the segments with log-probs"
    return None
