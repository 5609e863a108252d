"""Invariants of the tree itself, and what the other checks share.

`focus.records.invariants` lists every invariant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NoReturn

from focus.errors import RecordError
from focus.tokens import FinishReason, Span, TokenIds
from focus.tree import Edge, Node, NodeId, Tree

__all__ = (
    "INTS",
    "LOG_PROB_SLACK",
    "NUMBERS",
    "check_numbers",
    "check_tree",
    "context_parts",
    "fail",
    "has_types",
    "type_names",
    "unmatched",
)

LOG_PROB_SLACK = 1e-6
"""How far above 0 rounding may push a log-prob."""

INTS = (int,)
NUMBERS = (float, int)


def fail(tree: Tree[Any], nodes: Sequence[NodeId], invariant: str, detail: str) -> NoReturn:
    """Refuse a sample.

    Raises:
        RecordError: always; it names problem, nodes and invariant.
    """
    node = f", node {nodes[0]}" if len(nodes) == 1 else f", nodes {list(nodes)}" if nodes else ""
    raise RecordError(f"problem {tree.header.problem.id!r}{node}: {detail} [{invariant}]")


def type_names(values: Iterable[object]) -> list[str]:
    """Names of the types among `values`, for an error."""
    return sorted({type(value).__name__ for value in values})


def has_types(values: Iterable[object], allowed: Iterable[type]) -> bool:
    """Whether the type of each value is one of these, not a subtype of it.

    >>> has_types((1, 2), INTS), has_types((1, True), INTS), has_types((1, 0.5), NUMBERS)
    (True, False, True)
    """
    types = list(map(type, values))
    left = len(types)
    for kind in allowed:
        left -= types.count(kind)
        if not left:
            return True
    return not left


def check_tree(tree: Tree[Any]) -> None:
    """What the tree itself must satisfy: I1, I6, I7, I14, I15, I16. Once per distinct token.

    Raises:
        RecordError: naming problem, node, invariant and numbers.
    """
    header = tree.header
    if header.sampling.law[0] <= 0:
        fail(
            tree,
            (),
            "I16",
            f"temperature {header.sampling.law[0]}: greedy ids cannot be trained on",
        )
    _check_rewards(tree)
    _check_ids(tree, 0, header.prompt_ids)
    for node in tree.edges():
        _check_edge(tree, node, node.incoming)
        if node.rebased is not None:
            _check_ids(tree, node.id, node.rebased)


def _check_rewards(tree: Tree[Any]) -> None:
    rewards = {node.id: (node.incoming.reward, node.incoming.step_reward) for node in tree.edges()}
    together = list(chain.from_iterable(rewards.values()))
    if has_types(together, NUMBERS) and math.isfinite(sum(together)):
        return
    for node_id, pair in rewards.items():
        check_numbers(tree, (node_id,), "I17", "reward", pair)


def _check_edge(tree: Tree[Any], node: Node[Any], edge: Edge) -> None:
    version, expected = edge.provenance.policy_version, tree.header.policy_version
    if version != expected:
        fail(tree, (node.id,), "I15", f"sampled by policy {version!r}, tree is of {expected!r}")
    if edge.finish is FinishReason.ABORT:
        fail(tree, (node.id,), "I14", "an aborted reply is no checkpoint")
    if node.is_truncated and not node.is_terminal:
        fail(tree, (node.id,), "I14", "truncated, yet its episode goes on")
    for span in edge.spans:
        _check_ids(tree, node.id, span.ids)
        if span.log_probs is not None:
            _check_log_probs(tree, node.id, span)


def _check_ids(tree: Tree[Any], node: NodeId, ids: TokenIds) -> None:
    if not ids:
        return
    if not has_types(ids, INTS):
        fail(tree, (node,), "I1", f"token ids of types {type_names(ids)}")
    limit = tree.header.vocab_size
    if min(ids) < 0 or (limit is not None and max(ids) >= limit):
        fail(tree, (node,), "I1", f"token ids in [{min(ids)}, {max(ids)}], vocabulary {limit}")


def _check_log_probs(tree: Tree[Any], node: NodeId, span: Span) -> None:
    values = span.log_probs or ()
    if len(values) != len(span.ids):
        fail(tree, (node,), "I7", f"{len(values)} log-probs for {len(span.ids)} ids")
    check_numbers(tree, (node,), "I6", "log-prob", values)
    if values and max(values) > LOG_PROB_SLACK:
        fail(tree, (node,), "I6", f"log-prob {max(values)} is above 0")


def check_numbers(
    tree: Tree[Any], nodes: Sequence[NodeId], invariant: str, name: str, values: Sequence[float]
) -> None:
    """Each value is an int or a float (no bool, no foreign scalar) and finite.

    Raises:
        RecordError: naming the first one that is not.
    """
    if not has_types(values, NUMBERS):
        fail(tree, nodes, invariant, f"{name}s of types {type_names(values)}")
    if not math.isfinite(sum(values)):
        bad = next((value for value in values if not math.isfinite(value)), sum(values))
        fail(tree, nodes, invariant, f"{name} {bad} is not finite")


def context_parts(tree: Tree[Any], node_id: NodeId) -> Iterator[TokenIds]:
    """The pieces of ``tree.context(node_id)``, last one first."""
    current: NodeId | None = node_id
    while current is not None:
        node = tree[current]
        if node.rebased is not None:
            yield node.rebased
            return
        if node.edge is None:
            yield tree.header.prompt_ids
        else:
            yield from (span.ids for span in reversed(node.edge.spans))
        current = node.parent


def unmatched(ids: TokenIds, parts: Iterable[TokenIds]) -> int:
    """How many ids are left once `parts` are matched from the end; 0 is a full match.

    >>> unmatched((1, 2, 3), [(3,), (1, 2)]), unmatched((1, 2, 3), [(3,), (9, 2)])
    (0, 2)
    """
    end = len(ids)
    for part in parts:
        start = end - len(part)
        if start < 0 or ids[start:end] != part:
            return max(end, 1)
        end = start
    return end
