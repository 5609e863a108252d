"""Invariants of a critic record."""

from __future__ import annotations

from typing import Any

from focus.credit.base import Credit
from focus.records.records import CriticRecord
from focus.records.tree_invariants import (
    check_numbers,
    context_parts,
    fail,
    unmatched,
)
from focus.records.verified import Verified
from focus.tree import Tree

__all__ = ("RANGE_SLACK", "check_critic_record")

RANGE_SLACK = 1e-9
"""How far outside the critic's range rounding may push a target."""


def check_critic_record(
    record: CriticRecord, tree: Tree[Any], credit: Credit, *, verified: Verified | None = None
) -> None:
    """One critic record against its tree and its credit.

    Args:
        record: the target.
        tree: where it comes from.
        credit: what gave it.
        verified: what checks of other records of the tree have read already.

    Raises:
        RecordError: naming problem, node, invariant and numbers.
    """
    at = (record.node,)
    verified = verified or Verified(tree)
    if record.source != verified.source:
        fail(tree, at, "C4", f"carries the identity {record.source}")
    if not 0 <= record.node < len(tree):
        fail(tree, at, "C4", f"no such checkpoint in a tree of {len(tree)}")
    _check_target(record, tree, credit)
    node = tree[record.node]
    if node.is_terminal or record.prior != node.value:
        fail(tree, at, "C3", f"prior {record.prior}, tree value {node.value}")
    check_numbers(tree, at, "C3", "prior", (record.prior,))
    ids = record.context.ids
    if ids is not None and unmatched(ids, context_parts(tree, record.node)):
        fail(tree, at, "C1", "context ids are not the checkpoint's")
    check_numbers(tree, at, "C5", "diagnostic", tuple(record.diagnostics.values()))
    truncated = record.node in verified.truncated
    if record.depth != node.depth or record.truncated is not truncated:
        detail = (
            f"depth {record.depth} of {node.depth}, truncated {record.truncated} of {truncated}"
        )
        fail(tree, at, "C5", detail)


def _check_target(record: CriticRecord, tree: Tree[Any], credit: Credit) -> None:
    at = (record.node,)
    target = credit.targets.get(record.node)
    low, high = tree.header.critic_range
    check_numbers(tree, at, "C2", "target", (record.target, record.count))
    if not low <= record.target <= high:
        fail(tree, at, "C2", f"target {record.target} outside the critic's range [{low}, {high}]")
    if target is None or abs(target.value - record.target) > RANGE_SLACK:
        fail(tree, at, "C2", f"target {record.target}, credit says {target}")
    if record.count != target.count or record.count < 1:
        fail(tree, at, "C2", f"count {record.count}, credit says {target.count}")
