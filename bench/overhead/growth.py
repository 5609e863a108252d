"""P7, P8: cost per node and memory per token as trees and their number grow."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from bench.overhead.figure import Figure
from bench.overhead.trees import fixed_tree, random_tree

from focus.credit import DirectBranchTd
from focus.records import actor_records
from focus.tree import Tree

__all__ = ("growth_figure", "growth_figures", "memory_per_token")

_LARGE = 100_000
_MOST_BYTES = 90


def growth_figures() -> Iterator[Figure]:
    large = random_tree(_LARGE, segment=4)
    yield _growth("random", large, [random_tree(10_000, segment=4) for _ in range(10)], goal=1.5)
    yield _growth("random", large, [random_tree(1_000, segment=4) for _ in range(100)], goal=2)
    large = fixed_tree((1,) * _LARGE, segment=4)
    small = [fixed_tree((1,) * 1_000, segment=4) for _ in range(100)]
    yield _growth("unbranched", large, small, goal=2)
    yield _many()
    yield from _memory()


def _growth(shape: str, large: Tree[None], small: Sequence[Tree[None]], *, goal: float) -> Figure:
    return growth_figure(
        f"credit and path samples per node, {shape} tree of {_LARGE:,} nodes against "
        f"{round(len(small[0]), -3):,}",
        _path_samples,
        large=[large],
        small=small,
        goal=goal,
    )


def _many() -> Figure:
    """Trees that a round collects at the same time are alive together when they are exported."""
    trees = [random_tree(100, segment=16) for _ in range(1_000)]
    return growth_figure(
        "credit and path samples per node, 1,000 trees alive at once against one",
        _path_samples,
        large=trees,
        small=trees[:1] * len(trees),
        goal=1.5,
    )


def _path_samples(tree: Tree[None]) -> object:
    return actor_records(tree, DirectBranchTd().estimate(tree), packing="path")


def growth_figure(
    what: str,
    convert: Callable[[Tree[None]], object],
    *,
    large: Sequence[Tree[None]],
    small: Sequence[Tree[None]],
    goal: float,
) -> Figure:
    """P7: time per node of what is large over that of what is small, turn by turn.

    Both hold about as many nodes. A small tree stays in the processor's caches from one pass
    over it to the next, a large one does not, which a goal above 1 leaves room for; a
    quadratic step would give the ratio of their sizes.
    """
    ratio = median(_per_node(convert, large) / _per_node(convert, small) for _ in range(3))
    return Figure.ratio("P7", what, ratio, goal=goal)


def _per_node(convert: Callable[[Tree[None]], object], trees: Sequence[Tree[None]]) -> float:
    """Seconds of processor time, with the garbage collector on and all samples kept."""
    kept: list[object] = []
    gc.collect()
    started = time.process_time()
    for tree in trees:
        kept.append(convert(tree))
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
