"""Trees of a given shape, made without a policy: what the figures are measured on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from focus.problem import Problem
from focus.tokens import FinishReason, Span
from focus.tree import Edge, Provenance, Tree, TreeHeader

__all__ = ("fixed_tree", "random_tree", "rollout_tree")

_PROMPT = tuple(range(256))
_VOCABULARY = 32_000


def fixed_tree(widths: Sequence[int], *, segment: int) -> Tree[None]:
    """Every checkpoint of depth d has `widths[d]` branches of `segment` tokens.

    >>> tree = fixed_tree((6, 6, 6), segment=2)
    >>> len(tree), len(tree.leaves())
    (259, 216)
    """
    rng = random.Random(0)
    tree = _root()
    level = [0]
    for depth, width in enumerate(widths):
        is_end = depth == len(widths) - 1
        level = [
            _grow(tree, parent, rng, segment, is_end) for parent in level for _ in range(width)
        ]
    return tree


def random_tree(nodes: int, *, segment: int, depth: int = 16) -> Tree[None]:
    """A random tree of about so many nodes and at most so deep; every leaf has ended."""
    rng = random.Random(1)
    parents: list[int] = [0]
    depths = [0]
    while len(parents) < nodes:
        parent = rng.randrange(len(parents))
        if depths[parent] < depth - 1:
            parents.append(parent)
            depths.append(depths[parent] + 1)
    inner = set(parents[1:])
    tree = _root()
    for node, parent in enumerate(parents[1:], start=1):
        _grow(tree, parent, rng, segment, node not in inner)
    return tree


def rollout_tree(rollouts: int, *, depth: int, segment: int) -> Tree[None]:
    """What a search of two phases grows: rollouts to the end, half of them from the root.

    The others start at checkpoints of those before them; each ends at the same depth.

    >>> tree = rollout_tree(4, depth=3, segment=2)
    >>> len(tree.children(0)), len(tree.terminals()), tree[tree.terminals()[0]].depth
    (2, 4, 3)
    """
    rng = random.Random(2)
    tree = _root()
    for number in range(rollouts):
        live = tree.columns.live
        parent = 0 if number < rollouts / 2 else rng.choice(live[1:])
        first = tree[parent].depth
        for index in range(depth - first):
            is_end = first + index + 1 == depth
            parent = _grow(tree, parent, rng, segment, is_end, expansion=number, index=index)
    return tree


def _root() -> Tree[None]:
    header = TreeHeader(
        problem=Problem(id="bench", prompt="a tree"), prompt_ids=_PROMPT, policy_version="bench"
    )
    return Tree(header, None, value=0.5)


def _grow(
    tree: Tree[None],
    parent: int,
    rng: random.Random,
    segment: int,
    is_end: bool,
    *,
    expansion: int | None = None,
    index: int = 0,
) -> int:
    """One more edge; without `expansion` it is one of its own."""
    ids = tuple(rng.randrange(_VOCABULARY) for _ in range(segment))
    log_probs = tuple(-rng.random() for _ in range(segment))
    number = len(tree)
    edge = Edge(
        spans=(Span(ids, log_probs),),
        provenance=Provenance(
            expansion=number if expansion is None else expansion,
            index=index,
            phase=0,
            request_id=f"request-{number}",
            policy_version="bench",
        ),
        reward=float(rng.random() < 0.5) if is_end else 0.0,
        finish=FinishReason.STOP if is_end else FinishReason.LENGTH,
    )
    value = None if is_end else rng.random()
    return tree.attach(parent, edge, None, value=value, is_terminal=is_end)
