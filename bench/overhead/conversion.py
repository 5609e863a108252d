"""P3, P4: from a settled tree to credit and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from bench.overhead.figure import Figure
from bench.overhead.timing import side_by_side
from bench.overhead.trees import fixed_tree, rollout_tree

from focus.credit import Credit, DirectBranchTd, Estimator, LambdaTd, RefinedTd
from focus.records import actor_records
from focus.tree import Tree

__all__ = ("conversion_figures",)


_ESTIMATORS = (
    ("DirectBranchTd", DirectBranchTd()),
    ("RefinedTd, the warm-up", RefinedTd()),
    ("LambdaTd, of the demo", LambdaTd()),
)


def conversion_figures() -> Iterator[Figure]:
    bushy, rolled = fixed_tree((6, 6, 6), segment=256), rollout_tree(32, depth=16, segment=4)
    for name, estimator in _ESTIMATORS:
        yield _credit("6-6-6", bushy, name, estimator)
    for name, estimator in _ESTIMATORS:
        yield _credit("32 rollouts of 16 segments", rolled, name, estimator)
    yield from _samples(bushy)


def _credit(shape: str, tree: Tree[None], name: str, estimator: Estimator) -> Figure:
    ratio = side_by_side(lambda: estimator.estimate(tree), _back_up(tree))
    return Figure.ratio(
        "P3",
        f"tree to credit by {name}, {shape}, against a plain back-up in Python",
        ratio,
        goal=3,
    )


def _back_up(tree: Tree[None]) -> Callable[[], list[float]]:
    """Means of V and branches, from lists at hand, and one subtraction per edge."""
    parents = [-1 if node.parent is None else node.parent for node in tree]
    rewards = [0.0 if node.edge is None else node.edge.reward for node in tree]
    values = [node.value for node in tree]

    def plain() -> list[float]:
        sums, counts = [0.0] * len(parents), [0] * len(parents)
        refined, over = [0.0] * len(parents), [0.0] * len(parents)
        for node in range(len(parents) - 1, -1, -1):
            prior = values[node]
            if prior is not None:
                refined[node] = (prior + sums[node]) / (1 + counts[node])
            if node:
                over[node] = rewards[node] + refined[node]
                sums[parents[node]] += over[node]
                counts[parents[node]] += 1
        return [over[node] - refined[parents[node]] for node in range(1, len(parents))]

    return plain


def _samples(tree: Tree[None]) -> Iterator[Figure]:
    credit = DirectBranchTd().estimate(tree)
    for what, floor in (
        ("numpy concatenation of each path's four columns", _from_tuples(tree, credit)),
        ("the same from arrays already at hand", _from_arrays(tree, credit)),
    ):
        ratio = side_by_side(lambda: actor_records(tree, credit, packing="path"), floor)
        yield Figure.ratio(
            "P4",
            f"tree to checked path samples, 6-6-6 of 256, against {what}",
            ratio,
            goal=2,
        )


def _from_tuples(tree: Tree[None], credit: Credit) -> Callable[[], object]:
    """Ids, mask, log-probs and weights of every root-to-leaf path, from the tree as it is."""

    def convert() -> object:
        return _concatenated(tree, _arrays(tree, credit))

    return convert


def _from_arrays(tree: Tree[None], credit: Credit) -> Callable[[], object]:
    arrays = _arrays(tree, credit)
    return lambda: _concatenated(tree, arrays)


def _arrays(tree: Tree[None], credit: Credit) -> list[list[np.ndarray]]:
    """Four columns of each node: what its edge adds, of the root the prompt."""
    prompt = np.array(tree.header.prompt_ids)
    columns = [[prompt, np.zeros_like(prompt), np.zeros(len(prompt)), np.zeros(len(prompt))]]
    for node in tree.edges():
        ids, log_probs = np.array(node.incoming.ids), np.array(node.incoming.log_probs)
        weights = np.full(len(ids), credit.advantages[node.id])
        columns.append([ids, np.ones_like(ids), log_probs, weights])
    return columns


def _concatenated(tree: Tree[None], arrays: list[list[np.ndarray]]) -> object:
    return [
        [np.concatenate(column) for column in zip(*(arrays[node] for node in path), strict=True)]
        for path in map(tree.path, tree.leaves())
    ]
