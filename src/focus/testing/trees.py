"""Trees drawn by hand, for tests of anything that reads a settled tree.

    tree = build_tree(fork(0.5, end(1.0), chain([0.5, 0.6], outcome=0.0)))

A `Sketch` is one checkpoint together with the edge that leads to it. `build_tree`
numbers the nodes in preorder, so the k-th node of the drawing has id k.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from focus.checkpoint import Allowance, Checkpoint
from focus.errors import ConfigError
from focus.problem import Problem
from focus.tokens import FinishReason, Span, TokenChain, TokenIds
from focus.tree import Edge, NodeId, Provenance, Returns, Tree, TreeHeader

__all__ = (
    "Shape",
    "Sketch",
    "build_tree",
    "chain",
    "end",
    "fork",
    "preorder",
    "random_sketch",
    "shapes",
)

Shape = tuple[Any, ...]
"""An ordered tree without contents: the tuple of its subtrees, a leaf being ``()``."""

_FIRST_ID = 100


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """One checkpoint and its incoming edge (whose fields the root ignores).

    Attributes:
        value: critic value V; None where no prediction exists.
        outcome: outcome reward of a terminal; None for a live checkpoint.
        children: in attach order. A live checkpoint without any is an unfinished leaf.
        step_reward, duration: of the incoming edge.
        sampled, observed: tokens of the incoming edge, sampled ones first.
        truncated: the terminal ran out of allowance or context.
        launched: starts an expansion of its own, though it is a first child; later
            children, and those of the root, always do.
        phase: of the search that bought the incoming edge; another phase than the parent's
            starts an expansion of its own.

    Raises:
        ConfigError: a terminal has children, or a live checkpoint is truncated.
    """

    value: float | None = None
    outcome: float | None = None
    children: tuple[Sketch, ...] = ()
    step_reward: float = 0.0
    duration: int = 0
    sampled: int = 1
    observed: int = 0
    truncated: bool = False
    launched: bool = False
    phase: int = 0

    def __post_init__(self) -> None:
        if self.outcome is not None and self.children:
            raise ConfigError("a terminal has no children")
        if self.truncated and self.outcome is None:
            raise ConfigError("only a terminal is truncated; an unfinished leaf is just live")

    @property
    def is_terminal(self) -> bool:
        return self.outcome is not None


def end(outcome: float, **edge: Any) -> Sketch:
    """A terminal with its outcome."""
    return Sketch(outcome=outcome, **edge)


def fork(value: float | None, *children: Sketch, **edge: Any) -> Sketch:
    """A live checkpoint; an unfinished leaf when it has no children."""
    return Sketch(value=value, children=children, **edge)


def chain(values: Sequence[float], *, outcome: float | None, **edge: Any) -> Sketch:
    """An unbranched path: one checkpoint per value, then the terminal.

    Without an outcome the last checkpoint is an unfinished leaf.

    >>> [sketch.value for sketch in preorder(chain([0.5, 0.6], outcome=1.0))]
    [0.5, 0.6, None]
    """
    below: tuple[Sketch, ...] = () if outcome is None else (end(outcome, **edge),)
    for value in reversed(values):
        below = (fork(value, *below, **edge),)
    return below[0]


def preorder(root: Sketch) -> Iterator[Sketch]:
    """Every node of a drawing in the order of the ids that `build_tree` gives."""
    stack = [root]
    while stack:
        sketch = stack.pop()
        yield sketch
        stack.extend(reversed(sketch.children))


def build_tree(
    root: Sketch,
    *,
    returns: Returns | None = None,
    critic_range: tuple[float, float] = (0.0, 1.0),
    prompt_ids: Sequence[int] = (1, 2, 3),
    allowance: Allowance | None = None,
) -> Tree[Checkpoint]:
    """The tree of a drawing: ids in preorder, distinct token ids, valid log-probs.

    A first child continues the expansion that made its parent, unless it is `launched`.

    Raises:
        ConfigError: the root is terminal.

    >>> tree = build_tree(fork(0.5, end(1.0), chain([0.5, 0.6], outcome=0.0)))
    >>> tree
    Tree(problem='drawn', 5 nodes, 2 leaves)
    >>> [node.incoming.provenance.expansion for node in tree.edges()]
    [0, 1, 1, 1]
    """
    if root.is_terminal:
        raise ConfigError("the root is the prompt; it cannot be terminal")
    prompt = tuple(prompt_ids)
    header = TreeHeader(
        problem=Problem(id="drawn", prompt="a drawing"),
        prompt_ids=prompt,
        policy_version="policy-0",
        critic_version="critic-0",
        critic_range=critic_range,
        returns=returns or Returns(),
    )
    start = Checkpoint(
        context=TokenChain(prompt),
        prompt_length=len(prompt),
        state=None,
        allowance=allowance or Allowance(),
    )
    builder = _Builder(Tree(header, start, value=root.value))
    stack = [(0, child) for child in reversed(root.children)]
    while stack:
        parent, sketch = stack.pop()
        node = builder.attach(parent, sketch)
        stack.extend((node, child) for child in reversed(sketch.children))
    return builder.tree


class _Builder:
    """Numbers tokens and expansions while a drawing is copied into a tree."""

    def __init__(self, tree: Tree[Checkpoint]) -> None:
        self.tree = tree
        self._expansions = 0
        self._token = _FIRST_ID

    def attach(self, parent: NodeId, sketch: Sketch) -> NodeId:
        above = self.tree[parent].payload
        sampled = self._tokens(sketch.sampled)
        spans = [Span(sampled, tuple(-(1 + token % 7) / 8 for token in sampled))]
        if sketch.observed:
            spans.append(Span(self._tokens(sketch.observed)))
        is_stop = sketch.is_terminal and not sketch.truncated
        edge = Edge(
            spans=tuple(spans),
            provenance=self._provenance(parent, sketch),
            reward=sketch.outcome or 0.0,
            step_reward=sketch.step_reward,
            duration=sketch.duration,
            finish=FinishReason.STOP if is_stop else FinishReason.LENGTH,
        )
        payload = replace(
            above,
            context=above.context.extended(edge.ids),
            allowance=above.allowance.after(tokens=sketch.sampled, turns=1),
        )
        return self.tree.attach(
            parent,
            edge,
            payload,
            value=sketch.value,
            is_terminal=sketch.is_terminal,
            is_truncated=sketch.truncated,
        )

    def _tokens(self, count: int) -> TokenIds:
        self._token += count
        return tuple(range(self._token - count, self._token))

    def _provenance(self, parent: NodeId, sketch: Sketch) -> Provenance:
        above = self.tree[parent].edge
        is_launched = sketch.launched or bool(self.tree.children(parent))
        if above is None or is_launched or above.provenance.phase != sketch.phase:
            expansion, index = self._expansions, 0
            self._expansions += 1
        else:
            expansion, index = above.provenance.expansion, above.provenance.index + 1
        return Provenance(
            expansion=expansion,
            index=index,
            phase=sketch.phase,
            request_id=f"request-{len(self.tree)}",
            policy_version=self.tree.header.policy_version,
        )


@cache
def shapes(nodes: int) -> tuple[Shape, ...]:
    """Every ordered tree of `nodes` nodes, once each (Catalan number `nodes` - 1 of them).

    >>> shapes(3)
    ((((),),), ((), ()))
    >>> [len(shapes(n)) for n in range(1, 8)]
    [1, 1, 2, 5, 14, 42, 132]
    """
    if nodes == 1:
        return ((),)
    return tuple(
        (first, *rest)
        for size in reversed(range(1, nodes))
        for first in shapes(size)
        for rest in shapes(nodes - size)
    )


def random_sketch(
    rng: random.Random,
    *,
    nodes: int,
    eagerness: float = 0.5,
    shaping: float = 0.0,
) -> Sketch:
    """A random drawing, bushy or deep, with finished and unfinished leaves.

    Args:
        rng: the only source of chance.
        nodes: size, ≥ 2.
        eagerness: chance that a node goes below the newest one; 0 is bushy, 1 a chain.
        shaping: largest absolute step reward.
    """
    parents = [0]
    for index in range(1, nodes):
        parents.append(index - 1 if rng.random() < eagerness else rng.randrange(index))
    below: list[list[Sketch]] = [[] for _ in parents]
    for index in range(nodes - 1, 0, -1):
        is_end = not below[index] and rng.random() < 0.8
        sketch = Sketch(
            value=None if is_end else rng.random(),
            outcome=float(rng.random() < 0.5) if is_end else None,
            children=tuple(below[index]),
            step_reward=shaping * rng.uniform(-1, 1),
            duration=rng.randrange(2),
            sampled=rng.randrange(1, 4),
            truncated=is_end and rng.random() < 0.1,
            launched=rng.random() < 0.1,
        )
        below[parents[index]].insert(0, sketch)
    return fork(rng.random(), *below[0])
