"""What the checks of one tree have read already, so that nothing is read twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from focus.records.outcomes import mean_outcomes, truncated_below
from focus.records.records import RecordKey
from focus.records.tree_invariants import INTS, NUMBERS, has_types
from focus.tokens import LogProbs, TokenIds
from focus.tree import NodeId, Tree

__all__ = ("Verified",)


class Verified:
    """Facts of one tree, and the tuples of its records that have passed.

    Siblings share their prefix, and a record of one span shares the reply's own tuples.
    Tuples cannot change, so one object is read once. Read off the tree, which `check_tree`
    has passed; never off the notes of what built the records.

    Attributes:
        source: the key that every record carries.
        outcomes: mean outcome of the finished leaves below each node.
        truncated: nodes above a leaf that ran out of allowance or context.
    """

    def __init__(self, tree: Tree[Any]) -> None:
        self.source = RecordKey.of(tree)
        self.outcomes = mean_outcomes(tree)
        self.truncated = truncated_below(tree)
        self._contexts: dict[NodeId, TokenIds] = {}
        self._ints: dict[int, Sequence[object]] = {id(ids): ids for ids in _token_ids(tree)}
        self._replies: dict[int, LogProbs] = {id(reply): reply for reply in _log_probs(tree)}

    def are_ints(self, values: Sequence[object]) -> bool:
        """Each is an int, and no bool; read once, for siblings and replies share their tuples."""
        if self._ints.get(id(values)) is not values:
            if not has_types(values, INTS):
                return False
            self._ints[id(values)] = values
        return True

    def are_numbers(self, values: Sequence[object]) -> bool:
        """Each is an int or a float, and no bool."""
        return self._replies.get(id(values)) is values or has_types(values, NUMBERS)

    def is_context(self, ids: TokenIds, node_id: NodeId) -> bool:
        """Whether these very ids were found to be the context of that node."""
        return self._contexts.get(node_id) is ids

    def add_context(self, ids: TokenIds, node_id: NodeId) -> None:
        self._contexts[node_id] = ids


def _token_ids(tree: Tree[Any]) -> Iterator[TokenIds]:
    yield tree.header.prompt_ids
    for node in tree.edges():
        for span in node.incoming.spans:
            yield span.ids
        if node.rebased is not None:
            yield node.rebased


def _log_probs(tree: Tree[Any]) -> Iterator[LogProbs]:
    for node in tree.edges():
        for span in node.incoming.spans:
            if span.log_probs is not None:
                yield span.log_probs
