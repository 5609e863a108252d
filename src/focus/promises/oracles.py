"""A3: every estimator against its definition in exact fractions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from focus.promises.base import Measured, Stand
from focus.testing.exact_credit import (
    deep_recursion,
    direct_gap,
    is_finished,
    lambda_gap,
    mc_gap,
    refined_gap,
)
from focus.testing.trees import Shape, Sketch, end, fork, random_sketch, shapes
from focus.tree import Returns

__all__ = ("all_small", "exact_advantages", "random_drawings")

_LARGEST = 500
_LARGE_ONE_IN = 200


def exact_advantages(stand: Stand) -> Measured:
    """All trees of up to six nodes with three kinds of leaves, all shapes of seven, then random.

    Random trees are small (to 12 nodes) but for one in 200, which has up to 500 nodes.
    """
    wanted = stand.pick(quick=2_000, full=100_000)
    worst, trees = 0.0, 0
    with deep_recursion():
        small = list(all_small(stand.pick(quick=5, full=6)))
        for drawing, returns in [*small, *random_drawings(wanted)]:
            worst = max(worst, _gap(drawing, returns))
            trees += 1
            if trees % 100 == 0:
                stand.progress(trees, len(small) + wanted)
    return Measured(worst, trees, {"small_trees": len(small), "random_trees": wanted})


def _gap(drawing: Sketch, returns: Returns) -> float:
    gaps = [gap(drawing, returns) for gap in (direct_gap, refined_gap, lambda_gap)]
    if is_finished(drawing):
        gaps.append(mc_gap(drawing, returns))
    return max(gaps)


def all_small(most: int) -> Iterator[tuple[Sketch, Returns]]:
    """Every shape of up to `most` nodes with every content; one content of each larger shape."""
    for nodes in range(2, most + 1):
        for shape in shapes(nodes):
            for drawing in _contents(shape):
                yield drawing, Returns(prior_strength=0.5)
    rng = random.Random(most)
    for shape in shapes(7):
        yield _filled(shape, rng), Returns(prior_strength=2.0)


def _contents(shape: Shape, values: tuple[float, float] = (0.1, 0.8)) -> list[Sketch]:
    """Every way to fill a shape: leaves fail, succeed or stay open; values alternate by depth."""
    if not shape:
        return [end(0.0), end(1.0), fork(0.3)]
    below = product(*(_contents(child, values[::-1]) for child in shape))
    return [fork(values[0], *children) for children in below]


def _filled(shape: Shape, rng: random.Random) -> Sketch:
    if not shape:
        return rng.choice([end(0.0), end(1.0), end(0.25), fork(0.3)])
    return fork(rng.choice([0.1, 0.5, 0.8]), *(_filled(child, rng) for child in shape))


def random_drawings(count: int) -> Iterator[tuple[Sketch, Returns]]:
    """Bushy and deep drawings under all kinds of returns."""
    rng = random.Random(0)
    for number in range(count):
        is_large = number % _LARGE_ONE_IN == 0
        drawing = random_sketch(
            rng,
            nodes=rng.randrange(2, _LARGEST if is_large else 13),
            eagerness=rng.choice([0.0, 0.3, 0.6, 0.9, 0.99]),
            shaping=rng.choice([0.0, 0.125]),
        )
        returns = Returns(
            discount=rng.choice([1.0, 0.875, 0.5]),
            step_weight=rng.choice([0.0, 1.0, -0.5]),
            prior_strength=rng.choice([0.25, 0.5, 1.0, 2.0, 4.0]),
        )
        yield (_finished(drawing) if number % 3 == 0 else drawing), returns


def _finished(drawing: Sketch) -> Sketch:
    """The same drawing with every open leaf ended."""
    if drawing.children:
        return fork(drawing.value, *map(_finished, drawing.children), duration=drawing.duration)
    return end(drawing.outcome or 0.0, duration=drawing.duration)
