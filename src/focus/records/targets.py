"""From a credited tree to the critic's regression targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focus._values import filled
from focus.credit.base import Credit, returns_for, target_returns
from focus.errors import RecordError
from focus.records.invariants import RANGE_SLACK, check_critic_export
from focus.records.outcomes import truncated_below
from focus.records.records import CriticContext, CriticRecord, RecordKey
from focus.tree import NodeId, SuffixMeans, Tree

__all__ = ("critic_records",)

_record = filled(CriticRecord)


def critic_records(
    tree: Tree[Any], credit: Credit, contexts: Mapping[NodeId, CriticContext]
) -> tuple[CriticRecord, ...]:
    """One record per target of `credit`, in node order, each checked against the tree.

    The target is credit's own; only a rounding error of at most 1e-9 past an end of the
    critic's range is taken back to that end. Whatever the estimator, the diagnostics
    ``samples`` and ``mean`` hold the suffix outcomes seen from the checkpoint on, so that a
    critic can be warmed up on them.

    Args:
        tree: a settled tree.
        credit: its targets; each must lie in ``tree.header.critic_range``.
        contexts: what the critic read of each checkpoint when it was scored.

    Raises:
        RecordError: a target has no context or no prior, lies outside the critic's
            range, or belongs to a terminal; no record is returned.

    >>> from focus.credit.base import Target
    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.25, end(1.0), end(0.0)))
    >>> credit = Credit(estimator="by hand", advantages={}, targets={0: Target(0.5, 2)})
    >>> context = CriticContext(renderer="token_chunk/1", text="abc", ids=(1, 2, 3))
    >>> [record] = critic_records(tree, credit, {0: context})
    >>> record.target, record.count, record.prior, record.diagnostics["mean"]
    (0.5, 2, 0.25, 0.5)
    """
    source = RecordKey.of(tree)
    truncated = truncated_below(tree)
    seen = SuffixMeans.of(tree, target_returns(tree, returns_for(tree, None)))
    records = tuple(
        _record(
            source=source,
            node=node_id,
            prior=_prior(tree, node_id),
            context=_context(tree, contexts, node_id),
            target=_within(tree.header.critic_range, target.value),
            count=target.count,
            depth=tree[node_id].depth,
            truncated=node_id in truncated,
            diagnostics={**credit.diagnostics.get(node_id, {}), **_outcomes(seen, node_id)},
        )
        for node_id, target in sorted(credit.targets.items())
    )
    check_critic_export(records, tree, credit)
    return records


def _outcomes(seen: SuffixMeans, node_id: NodeId) -> dict[str, float]:
    """No mean where nothing was seen: missing is not zero."""
    found = {"samples": float(seen.counts[node_id])}
    return {**found, "mean": seen.means[node_id]} if seen.counts[node_id] else found


def _context(
    tree: Tree[Any], contexts: Mapping[NodeId, CriticContext], node_id: NodeId
) -> CriticContext:
    if node_id not in contexts:
        raise RecordError(_at(tree, node_id, "has a critic target and no stored context"))
    return contexts[node_id]


def _prior(tree: Tree[Any], node_id: NodeId) -> float:
    if not 0 <= node_id < len(tree):
        raise RecordError(_at(tree, node_id, f"has a target, but the tree has {len(tree)} nodes"))
    value = tree[node_id].value
    if value is None:
        kind = "terminal" if tree[node_id].is_terminal else "checkpoint without critic value"
        raise RecordError(_at(tree, node_id, f"has a critic target, but is a {kind} [C3]"))
    return value


def _at(tree: Tree[Any], node_id: NodeId, detail: str) -> str:
    return f"problem {tree.header.problem.id!r}, node {node_id}: {detail}"


def _within(bounds: tuple[float, float], value: float) -> float:
    low, high = bounds
    if low - RANGE_SLACK <= value <= high + RANGE_SLACK:
        return min(max(value, low), high)
    return value
