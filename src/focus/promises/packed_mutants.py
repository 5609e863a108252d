"""Ways to spoil a packed tree, each of which some invariant forbids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from focus.records import PackedTree, Segment

__all__ = ("PACKED_MUTANTS",)

Mutant = Callable[[PackedTree], PackedTree]
_NAN = float("nan")


def _trained(change: Callable[[Segment], dict[str, Any]]) -> Mutant:
    """Change the last trained segment."""

    def spoil(packed: PackedTree) -> PackedTree:
        place = max(i for i, segment in enumerate(packed.segments) if segment.log_probs)
        segment = packed.segments[place]
        changed = segment._replace(**change(segment))
        segments = (*packed.segments[:place], changed, *packed.segments[place + 1 :])
        return replace(packed, segments=segments)

    return spoil


def _last_edge(**change: Any) -> Mutant:
    """Change what is said of the last trained edge."""
    return lambda packed: replace(
        packed, edges=(*packed.edges[:-1], packed.edges[-1]._replace(**change))
    )


def _last(values: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return (*values[:-1], value)


def _twice(packed: PackedTree) -> PackedTree:
    """The last segment stands there again, as a sibling of itself."""
    last = packed.segments[-1]
    size = len(last.ids)
    again = last._replace(start=last.start + size, end=last.end + size)
    longer = [
        segment._replace(end=segment.end + size)
        if segment.end == last.end and segment is not last
        else segment
        for segment in packed.segments
    ]
    return replace(packed, segments=(*longer, again))


PACKED_MUTANTS: dict[str, Mutant] = {
    "float id": _trained(lambda s: {"ids": _last(s.ids, float(s.ids[-1]))}),
    "another id": _trained(lambda s: {"ids": _last(s.ids, s.ids[-1] + 1)}),
    "another parent": _trained(lambda s: {"parent": s.parent - 1}),
    "another position": _trained(lambda s: {"position": s.position + 1}),
    "an interval too long": _trained(lambda s: {"end": s.end + 1}),
    "an interval too short": _trained(lambda s: {"end": s.end - 1}),
    "another start": _trained(lambda s: {"start": s.start + 1}),
    "another edge": _trained(lambda s: {"node": 0}),
    "not trained": _trained(lambda s: {"log_probs": (), "weight": 0.0}),
    "log-prob NaN": _trained(lambda s: {"log_probs": _last(s.log_probs, _NAN)}),
    "log-prob next": _trained(lambda s: {"log_probs": _last(s.log_probs, s.log_probs[-1] - 1e-12)}),
    "log-probs short": _trained(lambda s: {"log_probs": s.log_probs[1:]}),
    "weight NaN": _trained(lambda s: {"weight": _NAN}),
    "weight next": _trained(lambda s: {"weight": s.weight + 1e-12}),
    "a segment missing": lambda p: replace(p, segments=p.segments[:-1]),
    "a segment twice": _twice,
    "lineage": lambda p: replace(p, lineage=(*p.lineage, 0)),
    "a fold": lambda p: replace(p, folds=(*p.folds, len(p.lineage) - 1)),
    "an edge missing": lambda p: replace(p, edges=p.edges[:-1]),
    "an edge twice": lambda p: replace(p, edges=(*p.edges, p.edges[-1])),
    "outcome": _last_edge(outcome=-0.125),
    "truncated": lambda p: _last_edge(truncated=not p.edges[-1].truncated)(p),
    "reply": _last_edge(request_id="another"),
    "temperature": lambda p: replace(p, temperature=0.5),
    "key": lambda p: replace(p, source=replace(p.source, key="another")),
}
