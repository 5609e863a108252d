"""Trees of a given shape, made without a policy: what the figures are measured on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from focus.problem import Problem
from focus.tokens import FinishReason, Span
from focus.tree import Edge, Provenance, Tree, TreeHeader

__all__ = ("fixed_tree", "random_tree")

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


def _root() -> Tree[None]:
    header = TreeHeader(
        problem=Problem(id="bench", prompt="a tree"), prompt_ids=_PROMPT, policy_version="bench"
    )
    return Tree(header, None, value=0.5)


def _grow(tree: Tree[None], parent: int, rng: random.Random, segment: int, is_end: bool) -> int:
    ids = tuple(rng.randrange(_VOCABULARY) for _ in range(segment))
    log_probs = tuple(-rng.random() for _ in range(segment))
    number = len(tree)
    edge = Edge(
        spans=(Span(ids, log_probs),),
        provenance=Provenance(
            expansion=number,
            index=0,
            phase=0,
            request_id=f"request-{number}",
            policy_version="bench",
        ),
        reward=float(rng.random() < 0.5) if is_end else 0.0,
        finish=FinishReason.STOP if is_end else FinishReason.LENGTH,
    )
    value = None if is_end else rng.random()
    return tree.attach(parent, edge, None, value=value, is_terminal=is_end)
