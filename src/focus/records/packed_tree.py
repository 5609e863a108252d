"""Packing ``tree``: all of a tree in one record, each token of it once.

For a learner with tree attention (docs/how-to/tree-packing.md). Nothing is lost: the path
samples of the same tree follow from it (`path_records`), so that a loss which is a sum over
trained tokens has the same value and gradient under all three packings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from focus.credit.base import Credit
from focus.records.layout import Segment, lay_out
from focus.records.outcomes import mean_outcomes
from focus.records.records import ActorRecord, RecordKey
from focus.tokens import TokenIds
from focus.tree import NodeId, Tree

__all__ = ("PackedTree", "PolicyRecord", "TokenColumns", "TrainedEdge", "pack_tree")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenColumns:
    """A packed tree token by token: eight columns of equal length.

    Attributes:
        ids: the row.
        parents: place of the token before it on its path; −1 where a context begins.
        positions: place in its context, from 0: what a position embedding takes.
        ends: one past the last token that follows from it; j conditions i iff
            j < i < ends[j], and attention lets i see j iff j <= i < ends[j].
        loss_mask: 1 where the id was sampled and is trained.
        log_probs: behaviour log-probs; 0.0 where the mask is 0.
        weights: advantages; 0.0 where the mask is 0.
        segments: which segment it stands in.
        edges: head of the edge that it belongs to; 0 for the prompt.
    """

    ids: TokenIds
    parents: tuple[int, ...]
    positions: tuple[int, ...]
    ends: tuple[int, ...]
    loss_mask: tuple[int, ...]
    log_probs: tuple[float, ...]
    weights: tuple[float, ...]
    segments: tuple[int, ...]
    edges: tuple[NodeId, ...]


class TrainedEdge(NamedTuple):
    """What a record says of an edge as a whole.

    Attributes:
        node: its head.
        outcome: mean outcome of finished leaves below; None if none finished.
        truncated: it ends in a leaf that ran out of allowance or context.
        request_id: the reply that it came from.
    """

    node: NodeId
    outcome: float | None
    truncated: bool
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTree:
    """One training sample for the policy: a whole tree.

    Tokens of segments and their log-probs are shared with the tree.

    Attributes:
        source: prompt and snapshots.
        segments: all of its tokens, depth first.
        lineage: by checkpoint, the one that it continues; −1 for the root.
        folds: checkpoints whose context starts afresh.
        edges: those that are trained here, in attach order.
        temperature, top_p, top_k: the law the ids were drawn from.
    """

    source: RecordKey
    segments: tuple[Segment, ...]
    lineage: tuple[int, ...]
    folds: tuple[NodeId, ...]
    edges: tuple[TrainedEdge, ...]
    temperature: float
    top_p: float
    top_k: int | None

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Heads of the edges trained here, in attach order."""
        return tuple(edge.node for edge in self.edges)

    @property
    def size(self) -> int:
        """Tokens of the row."""
        return sum(len(segment.ids) for segment in self.segments)

    @property
    def trained_tokens(self) -> int:
        """Tokens with loss mask 1."""
        return sum(len(segment.log_probs) for segment in self.segments)

    def columns(self) -> TokenColumns:
        """The same, token by token.

        >>> from focus.testing.trees import build_tree, end, fork
        >>> tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
        >>> packed = pack_tree(tree, Credit(estimator="by hand", advantages={1: 0.5, 3: -0.5}))
        >>> columns = packed.columns()
        >>> columns.ids, columns.parents, columns.positions, columns.ends
        ((1, 2, 3, 100, 101, 102), (-1, 0, 1, 2, 3, 3), (0, 1, 2, 3, 4, 4), (6, 6, 6, 6, 5, 6))
        >>> columns.loss_mask, columns.weights, columns.edges
        ((0, 0, 0, 1, 0, 1), (0.0, 0.0, 0.0, 0.5, 0.0, -0.5), (0, 0, 0, 1, 2, 3))
        """
        return TokenColumns(
            ids=tuple(token for segment in self.segments for token in segment.ids),
            parents=tuple(self._parents()),
            positions=tuple(
                place
                for segment in self.segments
                for place in range(segment.position, segment.position + len(segment.ids))
            ),
            ends=self._repeated(segment.end for segment in self.segments),
            loss_mask=self._repeated(int(bool(s.log_probs)) for s in self.segments),
            log_probs=tuple(
                value
                for segment in self.segments
                for value in segment.log_probs or repeat(0.0, len(segment.ids))
            ),
            weights=self._repeated(segment.weight for segment in self.segments),
            segments=self._repeated(range(len(self.segments))),
            edges=self._repeated(segment.node for segment in self.segments),
        )

    def _parents(self) -> Iterator[int]:
        for segment in self.segments:
            if segment.parent < 0:
                yield -1
            else:
                before = self.segments[segment.parent]
                yield before.start + len(before.ids) - 1
            yield from range(segment.start, segment.start + len(segment.ids) - 1)

    def _repeated(self, by_segment: Any) -> tuple[Any, ...]:
        pairs = zip(by_segment, self.segments, strict=True)
        return tuple(value for value, segment in pairs for _ in segment.ids)


PolicyRecord = ActorRecord | PackedTree
"""What a policy's trainer receives: rows, or whole trees."""


def pack_tree(tree: Tree[Any], credit: Credit) -> PackedTree:
    """All of a settled tree as one record; linear in its nodes.

    Args:
        tree: a settled tree.
        credit: one weight per edge to train, by head node; other edges are not trained.
    """
    segments = lay_out(tree, credit.advantages)
    outcomes, nodes = mean_outcomes(tree), list(tree)
    temperature, top_p, top_k = tree.header.sampling.law
    return PackedTree(
        source=RecordKey.of(tree),
        segments=segments,
        lineage=tuple(tree.columns.parents),
        folds=tuple(tree.columns.contexts),
        edges=tuple(
            TrainedEdge(
                node_id,
                outcomes[node_id],
                nodes[node_id].is_truncated,
                nodes[node_id].incoming.provenance.request_id,
            )
            for node_id in tree.columns.trained
            if node_id in credit.advantages
        ),
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
    )
