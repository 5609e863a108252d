"""P7, P8: cost per node and memory per token as trees and their number grow."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator

from bench.overhead.figure import Figure
from bench.overhead.trees import fixed_tree, random_tree

from focus.credit import DirectBranchTd
from focus.records import actor_records
from focus.tree import Tree

__all__ = ("growth_figures", "memory_per_token")

_SMALL, _LARGE = 1_000, 100_000
_MOST_BYTES = 90


def growth_figures() -> Iterator[Figure]:
    yield _growth("random", lambda nodes: random_tree(nodes, segment=4))
    yield _growth("unbranched", lambda nodes: fixed_tree((1,) * nodes, segment=4))
    yield _many()
    yield from _memory()


def _growth(shape: str, make: Callable[[int], Tree[None]]) -> Figure:
    what = f"credit and path samples per node, {shape} tree of {_LARGE:,} nodes against {_SMALL:,}"
    return _ratio(what, large=[make(_LARGE)], small=make(_SMALL))


def _many() -> Figure:
    """Trees that a round collects at the same time are alive together when they are exported."""
    trees = [random_tree(100, segment=16) for _ in range(1_000)]
    what = "credit and path samples per node, 1,000 trees alive at once against one"
    return _ratio(what, large=trees, small=trees[0])


def _ratio(what: str, *, large: list[Tree[None]], small: Tree[None]) -> Figure:
    """Per node, over as many nodes in either case, turn by turn."""
    same = [small] * (sum(map(len, large)) // len(small))
    rounds = [(_per_node(large), _per_node(same)) for _ in range(3)]
    ours, least = map(min, zip(*rounds, strict=True))
    return Figure(id="P7", what=what, value=ours / least, unit="ratio", goal=1.5, floor=1.0)


def _per_node(trees: list[Tree[None]]) -> float:
    """Seconds of processor time, with the garbage collector on and all samples kept."""
    kept: list[object] = []
    gc.collect()
    started = time.process_time()
    for tree in trees:
        kept.append(actor_records(tree, DirectBranchTd().estimate(tree), packing="path"))
    return (time.process_time() - started) / sum(map(len, trees))


def _memory() -> Iterator[Figure]:
    short, long = memory_per_token(100), memory_per_token(1_000)
    yield Figure(
        id="P8",
        what="tree memory per distinct token, a chain of 1,000 segments against one of 100",
        value=long / short,
        unit="ratio",
        goal=1.1,
        floor=1.0,
    )
    # Least: an id and a log-prob of their own (28 and 24 bytes), and a place for each (8).
    yield Figure(
        id="P8",
        what="tree memory per distinct token, segments of 64 tokens",
        value=long,
        unit="bytes",
        goal=_MOST_BYTES,
        floor=68,
    )


def memory_per_token(segments: int) -> float:
    """Bytes that a chain of so many segments of 64 tokens holds, per sampled token."""
    tracemalloc.start()
    tree = fixed_tree((1,) * segments, segment=64)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size / tree.sampled_tokens()
