"""An append-only tree of checkpoints for one problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

from focus._values import filled
from focus.errors import LifecycleError
from focus.problem import Problem
from focus.sampling import Sampling
from focus.tokens import TokenIds
from focus.tree.columns import TreeColumns
from focus.tree.node import Edge, Identity, Node, NodeId, Selection
from focus.tree.returns import Returns

__all__ = ("Tree", "TreeHeader")

P = TypeVar("P")


_node = filled(Node)


@dataclass(frozen=True, kw_only=True)
class TreeHeader:
    """What is frozen for a whole tree.

    Attributes:
        problem: what it was collected for.
        identity: run, round and attempt.
        prompt_ids: the rendered prompt, the root's context.
        sampling: the one sampling law (and its limits) of every edge.
        policy_version, critic_version: the snapshots that collected it.
        critic_range: lowest and highest value the critic may give.
        returns: γ, β, κ.
        vocab_size: None when the policy does not tell.
        context_limit: most tokens of prompt plus reply; None when unknown.
    """

    problem: Problem
    prompt_ids: TokenIds
    identity: Identity = field(default_factory=Identity)
    sampling: Sampling = field(default_factory=Sampling)
    policy_version: str = ""
    critic_version: str = ""
    critic_range: tuple[float, float] = (0.0, 1.0)
    returns: Returns = field(default_factory=Returns)
    vocab_size: int | None = None
    context_limit: int | None = None


class Tree(Generic[P]):
    """Checkpoints and the edges between them; ids grow in attach order.

    The payload `P` is opaque: the tree knows tokens, values and lineage, never an
    environment. Nodes are frozen; only `attach` changes the tree.

    Attributes:
        header: what is frozen for all of it.
        selections: why each expansion was bought.
        columns: the numbers of all nodes, in lists by id.
    """

    def __init__(self, header: TreeHeader, payload: P, *, value: float | None) -> None:
        self.header = header
        self.selections: list[Selection] = []
        root = Node(id=0, parent=None, depth=0, edge=None, payload=payload, value=value)
        self._nodes: list[Node[P]] = [root]
        self.columns = TreeColumns(root)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node[P]]:
        return iter(self._nodes)

    def __reversed__(self) -> Iterator[Node[P]]:
        return reversed(self._nodes)

    def __getitem__(self, node_id: NodeId) -> Node[P]:
        if node_id >= 0:
            try:
                return self._nodes[node_id]
            except IndexError:
                pass
        raise KeyError(f"no node {node_id} in a tree of {len(self._nodes)}")

    def __repr__(self) -> str:
        problem = self.header.problem.id
        return f"Tree(problem={problem!r}, {len(self)} nodes, {len(self.leaves())} leaves)"

    @property
    def root(self) -> Node[P]:
        return self._nodes[0]

    def attach(
        self,
        parent: NodeId,
        edge: Edge,
        payload: P,
        *,
        value: float | None,
        is_terminal: bool = False,
        is_truncated: bool = False,
        rebased: TokenIds | None = None,
    ) -> NodeId:
        """Add a checkpoint below `parent` and return its id.

        Raises:
            KeyError: there is no such parent.
            LifecycleError: the parent ended its episode.
        """
        above = self[parent]
        if above.is_terminal:
            raise LifecycleError(f"node {parent} is terminal and cannot be continued")
        node = _node(
            id=len(self._nodes),
            parent=parent,
            depth=above.depth + 1,
            edge=edge,
            payload=payload,
            value=value,
            is_terminal=is_terminal,
            is_truncated=is_truncated,
            rebased=rebased,
        )
        self._nodes.append(node)
        self.columns.append(above, node)
        return node.id

    def children(self, node_id: NodeId) -> Sequence[NodeId]:
        """Child ids in attach order."""
        return self.columns.children[node_id]

    def edges(self) -> Iterator[Node[P]]:
        """Every node that has an incoming edge, in attach order."""
        return iter(self._nodes[1:])

    def path(self, node_id: NodeId) -> list[NodeId]:
        """Ids from the root down to `node_id`, both included."""
        path = []
        current: NodeId | None = node_id
        while current is not None:
            path.append(current)
            current = self[current].parent
        return path[::-1]

    def leaves(self) -> list[NodeId]:
        """Nodes without children, in attach order (the root alone is one)."""
        return [node_id for node_id, below in enumerate(self.columns.children) if not below]

    def terminals(self) -> list[NodeId]:
        """Leaves whose episode ended."""
        return self.columns.terminals.copy()

    def context(self, node_id: NodeId) -> TokenIds:
        """Every token that a continuation of `node_id` is conditioned on.

        Prompt, then the tokens of each edge; a rebased node (a fold) starts afresh.
        """
        parts: list[TokenIds] = []
        current: NodeId | None = node_id
        while current is not None:
            node = self[current]
            if node.rebased is not None:
                parts.append(node.rebased)
                break
            parts.append(self.header.prompt_ids if node.edge is None else node.edge.ids)
            current = node.parent
        return tuple(chain.from_iterable(reversed(parts)))

    def sampled_tokens(self) -> int:
        """Tokens that the policy sampled and that an edge of this tree holds."""
        return sum(node.incoming.sampled_tokens for node in self.edges())

    def outcome(self, node_id: NodeId) -> float:
        """Outcome reward of a terminal."""
        node = self[node_id]
        if not node.is_terminal:
            raise ValueError(f"node {node_id} is not terminal and has no outcome")
        return node.incoming.reward
