"""Keys and values of finished prefixes, shared along the tree."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from focus.tokens import TokenIds

__all__ = ("Held", "PrefixCache")


@dataclass(eq=False, slots=True)
class _Node:
    """A run of ids on one path. `kv` is [layers, 2, heads, len(ids), head size].

    `logits`, if known, are those after its last id: [vocabulary].
    """

    ids: TokenIds
    kv: torch.Tensor
    parent: _Node | None
    logits: torch.Tensor | None = None
    children: dict[int, _Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of some ids.

    Attributes:
        length: leading ids that are held.
        pieces: their keys and values, in order.
        logits: what the model gave after the last id, where all are held and that is known.
    """

    length: int
    pieces: list[torch.Tensor]
    logits: torch.Tensor | None = None


class PrefixCache:
    """A radix tree from token ids to their keys and values, bounded and least-recent first.

    Paths that begin alike share nodes, so siblings hold their parent's prefix once. What
    `match` returns is copied by the caller, so eviction never touches a running request.

    Args:
        capacity: most tokens held; 0 turns the cache off.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted_tokens = 0
        self._tokens = 0
        self._root = _Node((), torch.empty(0), None)
        self._by_use: OrderedDict[_Node, None] = OrderedDict()

    def __len__(self) -> int:
        """Tokens held now."""
        return self._tokens

    def holds(self, length: int) -> bool:
        """Whether so many ids of one path would be kept."""
        return length <= self.capacity

    def match(self, ids: TokenIds) -> Held:
        """What is held of `ids`."""
        pieces: list[torch.Tensor] = []
        node, start, path = self._root, 0, []
        logits = None
        while start < len(ids) and (child := node.children.get(ids[start])) is not None:
            shared = _shared_length(child.ids, ids[start : start + len(child.ids)])
            pieces.append(child.kv[..., :shared, :])
            path.append(child)
            start += shared
            if shared < len(child.ids):
                break
            node = child
            logits = child.logits if start == len(ids) else None
        self._touch(path)
        return Held(start, pieces, logits)

    def insert(
        self,
        ids: TokenIds,
        read: Callable[[int, int], torch.Tensor],
        *,
        logits: torch.Tensor | None = None,
    ) -> None:
        """Hold `ids`; `read(start, stop)` copies the keys and values of those positions.

        Args:
            logits: what the model gave after the last id; kept too.
        """
        if not self.holds(len(ids)):
            return
        node, start, path = self._root, 0, []
        while start < len(ids) and (child := node.children.get(ids[start])) is not None:
            shared = _shared_length(child.ids, ids[start : start + len(child.ids)])
            node = child if shared == len(child.ids) else self._split(child, shared)
            path.append(node)
            start += shared
        if start < len(ids):
            leaf = _Node(ids[start:], read(start, len(ids)), node)
            node.children[ids[start]] = leaf
            self._tokens += len(leaf.ids)
            path.append(leaf)
        if logits is not None and path:
            path[-1].logits = logits
        self._touch(path)
        while self._tokens > self.capacity:
            self._evict()

    def clear(self) -> None:
        """Forget everything: the weights have changed."""
        self._root.children.clear()
        self._by_use.clear()
        self._tokens = 0

    def _touch(self, path: list[_Node]) -> None:
        # Leaf first, so every parent is more recent than its children and the least
        # recent node of all is always a leaf.
        for node in reversed(path):
            self._by_use[node] = None
            self._by_use.move_to_end(node)

    def _split(self, node: _Node, at: int) -> _Node:
        parent = node.parent
        assert parent is not None
        # Clones: a view would keep the whole run's memory after half of it is evicted.
        upper = _Node(node.ids[:at], node.kv[..., :at, :].clone(), parent)
        upper.children[node.ids[at]] = node
        parent.children[node.ids[0]] = upper
        node.ids, node.kv, node.parent = node.ids[at:], node.kv[..., at:, :].clone(), upper
        return upper

    def _evict(self) -> None:
        leaf, _ = self._by_use.popitem(last=False)
        assert leaf.parent is not None
        del leaf.parent.children[leaf.ids[0]]
        self._tokens -= len(leaf.ids)
        self.evicted_tokens += len(leaf.ids)


def _shared_length(left: TokenIds, right: TokenIds) -> int:
    if left == right:
        return len(left)
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
