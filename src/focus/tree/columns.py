"""A tree's numbers in lists by node id: what a pass over all of it reads."""

from __future__ import annotations

import math
from typing import Any

from focus.tokens import Span, TokenIds
from focus.tree.node import Node, NodeId
from focus.tree.returns import Returns

__all__ = ("TreeColumns",)


class TreeColumns:
    """What nodes and edges say, kept by id while the tree grows; `Tree` alone adds to it.

    A pass over lists costs a fraction of one over objects, and on large trees less still:
    neighbours in a list are neighbours in memory. To be read, never written.

    Attributes:
        parents: −1 for the root.
        children: in attach order.
        values: critic estimate V; None where there is none.
        live, terminals: nodes where the episode goes on, and where it ended.
        priors: V of each live one, in their order; NaN where there is none.
        trained: heads of the edges that hold a sampled token.
        rewards, step_rewards, durations: of the incoming edge; 0 for the root.
        spans: tokens of the incoming edge; none for the root.
        contexts: of the folds, the tokens that their context starts afresh with.
        continued: the child that the same expansion went on to; 0 for none.

    >>> from focus.testing.trees import build_tree, chain, end, fork
    >>> columns = build_tree(fork(0.5, chain([0.25], outcome=1.0), end(0.0))).columns
    >>> columns.parents, columns.children, columns.values
    ([-1, 0, 1, 0], [[1, 3], [2], [], []], [0.5, 0.25, None, None])
    >>> columns.live, columns.terminals, columns.trained
    ([0, 1], [2, 3], [1, 2, 3])
    >>> columns.rewards, columns.continued
    ([0.0, 0.0, 1.0, 0.0], [0, 2, 0, 0])
    """

    __slots__ = (
        "children",
        "contexts",
        "continued",
        "durations",
        "live",
        "parents",
        "priors",
        "rewards",
        "spans",
        "step_rewards",
        "terminals",
        "trained",
        "values",
    )

    def __init__(self, root: Node[Any]) -> None:
        self.parents: list[NodeId] = [-1]
        self.children: list[list[NodeId]] = [[]]
        self.values: list[float | None] = [root.value]
        self.live: list[NodeId] = [0]
        self.priors: list[float] = [math.nan if root.value is None else root.value]
        self.terminals: list[NodeId] = []
        self.trained: list[NodeId] = []
        self.contexts: dict[NodeId, TokenIds] = {}
        self.rewards: list[float] = [0.0]
        self.step_rewards: list[float] = [0.0]
        self.durations: list[int] = [0]
        self.continued: list[NodeId] = [0]
        self.spans: list[tuple[Span, ...]] = [()]

    def append(self, parent: Node[Any], node: Node[Any]) -> None:
        """The numbers of a node that was attached below `parent`."""
        edge, before = node.incoming, parent.edge
        if before is not None and before.provenance.expansion == edge.provenance.expansion:
            self.continued[parent.id] = node.id
        self.parents.append(parent.id)
        self.children.append([])
        self.children[parent.id].append(node.id)
        self.values.append(node.value)
        if node.is_terminal:
            self.terminals.append(node.id)
        else:
            self.live.append(node.id)
            self.priors.append(math.nan if node.value is None else node.value)
        if edge.sampled_tokens:
            self.trained.append(node.id)
        if node.rebased is not None:
            self.contexts[node.id] = node.rebased
        self.rewards.append(edge.reward)
        self.step_rewards.append(edge.step_reward)
        self.durations.append(edge.duration)
        self.continued.append(0)
        self.spans.append(edge.spans)

    def gained(self, returns: Returns) -> list[float]:
        """r(e) of each edge, by its head; 0 for the root."""
        weight = returns.step_weight
        if not any(self.step_rewards):
            return self.rewards.copy()
        pairs = zip(self.rewards, self.step_rewards, strict=True)
        return [outcome + weight * step for outcome, step in pairs]

    def carried(self, returns: Returns) -> list[float]:
        """γ^d(e) of each edge, by its head; 1 for the root."""
        discount = returns.discount
        if discount == 1:
            return [1.0] * len(self.durations)
        return [discount**duration for duration in self.durations]
