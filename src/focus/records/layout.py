"""Where each token of a tree stands when all of them are laid out in one row.

A tree knows its lineage, so nothing is compared, and tokens are shared with it, not copied:
one pass over its edges gives the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from focus.tokens import LogProbs, TokenIds
from focus.tree import NodeId, Tree

__all__ = ("Segment", "lay_out")


class Segment(NamedTuple):
    """Consecutive tokens of the row that stand on the same paths and carry the same weight.

    The prompt, one span of an edge, or the context that a fold starts afresh. Its tokens
    follow one another; of tokens i and j of the row, with s the segment of j,

        j conditions i  iff  s.start <= j < i < s.end

    Attributes:
        node: head of its edge; 0 for the prompt, the fold for a context.
        start: place of its first token in the row.
        parent: the segment before it on its path; −1 where a context begins.
        position: place of its first token in its context.
        end: one past the last token of the row that follows from it.
        ids: its tokens, at least one.
        log_probs: behaviour log-probs of ids that are trained; empty for those that are not.
        weight: advantage of each of its tokens; 0.0 where none is trained.
    """

    node: NodeId
    start: int
    parent: int
    position: int
    end: int
    ids: TokenIds
    log_probs: LogProbs
    weight: float


def lay_out(tree: Tree[Any], weights: Mapping[NodeId, float]) -> tuple[Segment, ...]:
    """All tokens of a tree once, depth first; children follow in attach order.

    What comes after a fold is conditioned on another context, so it follows behind the rest
    as a tree of its own. Linear in nodes.

    Args:
        tree: a settled tree.
        weights: advantage by head node of the edges to train.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
    >>> for segment in lay_out(tree, {1: 0.25, 3: -0.5}):
    ...     print(*segment)
    0 0 -1 0 6 (1, 2, 3) () 0.0
    1 3 0 3 6 (100,) (-0.375,) 0.25
    2 4 1 4 5 (101,) () 0.0
    3 5 1 4 6 (102,) (-0.625,) -0.5
    """
    rows = _Rows(tree, weights)
    children = tree.columns.children
    roots = [0]
    for root in roots:
        rows.start(root)
        waiting = children[root][::-1]
        while waiting:
            node_id = waiting.pop()
            rows.add(node_id)
            if node_id in rows.contexts:
                roots.append(node_id)
            elif below := children[node_id]:
                waiting += below[::-1]
    return tuple(rows.segments)


class _Rows:
    """Segments so far; and by node, the last one of its context and that context's length.

    Attributes:
        segments: the row.
        contexts: of the root and of folds, the tokens that their context starts with.
    """

    def __init__(self, tree: Tree[Any], weights: Mapping[NodeId, float]) -> None:
        columns = tree.columns
        self.segments: list[Segment] = []
        self.contexts = {0: tree.header.prompt_ids, **columns.contexts}
        self._parents, self._spans = columns.parents, columns.spans
        self._weights = list(map(weights.get, range(len(tree))))
        self._own, self._below = self._sizes()
        self._last, self._length = [-1] * len(tree), [0] * len(tree)
        self._at = 0

    def start(self, node_id: NodeId) -> None:
        """A context that nothing precedes."""
        context = self.contexts[node_id]
        self._last[node_id] = len(self.segments) if context else -1
        self._length[node_id] = len(context)
        if context:
            end = self._at + len(context) + self._below[node_id]
            self.segments.append(Segment(node_id, self._at, -1, 0, end, context, (), 0.0))
            self._at += len(context)

    def add(self, node_id: NodeId) -> None:
        """The spans of the edge into a node, whose parent is there already."""
        above, segments = self._parents[node_id], self.segments
        weight = self._weights[node_id]
        last, length, at = self._last[above], self._length[above], self._at
        end = at + self._own[node_id]
        if node_id not in self.contexts:
            end += self._below[node_id]
        for span in self._spans[node_id]:
            ids, log_probs = span.ids, span.log_probs
            if not ids:
                continue
            if weight is None or not log_probs:
                segment = Segment(node_id, at, last, length, end, ids, (), 0.0)
            else:
                segment = Segment(node_id, at, last, length, end, ids, log_probs, weight)
            last = len(segments)
            segments.append(segment)
            length += len(ids)
            at += len(ids)
        self._last[node_id], self._length[node_id], self._at = last, length, at

    def _sizes(self) -> tuple[list[int], list[int]]:
        """Tokens of each node's edge, and of all that is conditioned on its context."""
        own = [sum([len(span.ids) for span in spans]) for spans in self._spans]
        below = [0] * len(own)
        for node_id in range(len(own) - 1, 0, -1):
            size = own[node_id]
            below[self._parents[node_id]] += (
                size if node_id in self.contexts else size + below[node_id]
            )
        return own, below
