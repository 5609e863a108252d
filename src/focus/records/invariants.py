"""What every exported sample satisfies, checked on every sample in production.

    I1   ids are ints in [0, vocabulary)                    tree, actor
    I2   mask, log-probs and weights align with the response, which is not empty  actor
    I3   the prefix is exactly the input of the request that sampled the response  actor
    I4   ids and log-probs are the replies', id by id       actor
    I5   masked-out positions carry 0.0                     actor
    I6   log-probs are finite numbers <= 0 (+1e-6)          tree, actor
    I7   each reply has one log-prob per id                 tree
    I8   a record's edges extend one another; no fold between them  actor
    I10  each sampled id with credit is trained exactly once  export
    I11  weights are finite numbers                         actor
    I12  an edge's weight is its credit's, bit for bit      actor
    I13  all records of a tree carry its one identity       actor
    I14  "truncated" marks leaves out of allowance or context; aborts are never exported
    I15  one policy version per tree                        tree
    I16  the sampling law is recorded, and a trainer can divide by its temperature
    I17  the outcome is the tree's, apart from the weight   actor
    I18  tokens fit the context limit, and the prefix leaves room  actor
    I19  a packed tree holds each token of its tree once       packed
    I20  its parents, positions and intervals are those of one row, depth first  packed
    C1   a critic context with ids is its checkpoint's context
    C2   target and count are the credit's, inside the critic's range
    C3   the prior is the checkpoint's finite value; terminals have none
    C4   one record per checkpoint, under the tree's identity
    C5   depth, truncation mark and diagnostics are the tree's, and finite

I7's second half (no more ids than requested) is checked on the reply itself, I9 (nothing
is re-encoded) holds because no package below `rendering` can encode. The bound of I11 is
left to the trainer: normalised and step-weighted advantages have none.

A packed tree is held to those marked actor too, edge by edge.

The checks read the tree, not the builder's notes: they climb from the record's nodes and
compare slices, each shared tuple once: about 0.05 µs per emitted token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from focus.credit.base import Credit
from focus.records.actor_invariants import check_actor_record
from focus.records.critic_invariants import RANGE_SLACK, check_critic_record
from focus.records.packed_invariants import check_packed_tree
from focus.records.packed_tree import PackedTree, PolicyRecord
from focus.records.records import CriticRecord
from focus.records.tree_invariants import LOG_PROB_SLACK, check_tree, fail
from focus.records.verified import Verified
from focus.tree import NodeId, Tree

__all__ = (
    "LOG_PROB_SLACK",
    "RANGE_SLACK",
    "check_actor_record",
    "check_critic_export",
    "check_critic_record",
    "check_export",
    "check_packed_tree",
    "check_tree",
)


def check_export(records: Sequence[PolicyRecord], tree: Tree[Any], credit: Credit) -> None:
    """All actor records of one tree, in any packing.

    Raises:
        RecordError: naming problem, node, invariant and numbers.
    """
    check_tree(tree)
    verified: Verified | None = None
    for record in records:
        if isinstance(record, PackedTree):
            check_packed_tree(record, tree, credit)
        else:
            verified = verified or Verified(tree)
            check_actor_record(record, tree, credit, verified=verified)
    _check_trained_once(records, tree, credit)


def check_critic_export(records: Sequence[CriticRecord], tree: Tree[Any], credit: Credit) -> None:
    """All critic records of one tree.

    Raises:
        RecordError: naming problem, node, invariant and numbers.
    """
    verified = Verified(tree)
    for record in records:
        check_critic_record(record, tree, credit, verified=verified)
    nodes = [record.node for record in records]
    if sorted(nodes) != sorted(credit.targets):
        fail(
            tree, nodes, "C4", f"records of {len(nodes)} nodes, targets of {sorted(credit.targets)}"
        )


def _check_trained_once(records: Sequence[PolicyRecord], tree: Tree[Any], credit: Credit) -> None:
    """Over all records; a packed tree by itself has been held against its credit already."""
    if len(records) == 1 and isinstance(records[0], PackedTree):
        return
    trained: set[NodeId] = set()
    for record in records:
        nodes = set(record.nodes)
        twice = trained & nodes
        if twice or len(nodes) != len(record.nodes):
            fail(tree, record.nodes, "I10", f"edges {sorted(twice)} are trained twice")
        trained |= nodes
    for node in credit.advantages:
        if node in trained:
            continue
        if not 0 < node < len(tree):
            fail(tree, (node,), "I10", f"{credit.estimator} gives credit to no edge of this tree")
        if tree[node].incoming.sampled_tokens:
            fail(tree, (node,), "I10", "has credit and is in no record")
