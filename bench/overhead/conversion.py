"""P3-P5, P7, P8: from a settled tree to credit, samples and layouts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
from bench.overhead.figure import Figure
from bench.overhead.timing import side_by_side
from bench.overhead.trees import fixed_tree, random_tree

from focus.credit import DirectBranchTd
from focus.records import actor_records
from focus.records.prefix_tree import prefix_trees
from focus.tree import Tree

__all__ = ("conversion_figures",)


def conversion_figures(*, quick: bool) -> Iterator[Figure]:
    tree = fixed_tree((6, 6, 6), segment=256)
    yield _credit(tree)
    yield _samples(tree)
    yield _layout(tree)
    yield _growth(10_000 if quick else 100_000)
    yield _memory()


def _credit(tree: Tree[None]) -> Figure:
    parents = np.array([-1 if node.parent is None else node.parent for node in tree]).tolist()
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

    estimator = DirectBranchTd()
    ours, floor = side_by_side(lambda: estimator.estimate(tree), plain, rounds=50)
    return Figure.ratio(
        "P3", "tree to credit, 6-6-6, against a plain back-up in Python", ours, floor, goal=3
    )


def _samples(tree: Tree[None]) -> Figure:
    credit = DirectBranchTd().estimate(tree)
    chains = []
    for leaf in tree.leaves():
        parts = [np.array(tree.header.prompt_ids)]
        parts += [np.array(tree[node].incoming.ids) for node in tree.path(leaf)[1:]]
        chains.append(parts)

    def plain() -> object:
        return [np.concatenate(parts) for parts in chains]

    ours, floor = side_by_side(lambda: actor_records(tree, credit, packing="path"), plain)
    return Figure.ratio(
        "P4",
        "tree to checked path samples, 6-6-6 of 256, against numpy concatenation of the ids",
        ours,
        floor,
        goal=2,
    )


def _layout(tree: Tree[None]) -> Figure:
    credit = DirectBranchTd().estimate(tree)
    sequences = [record.tokens for record in actor_records(tree, credit, packing="path")]
    distinct = [np.array(node.incoming.ids) for node in tree.edges()]

    def plain() -> object:
        return np.concatenate(distinct)

    ours, floor = side_by_side(lambda: prefix_trees(sequences, most_tokens=10**9), plain)
    return Figure.ratio(
        "P5",
        "layout of the distinct tokens, 6-6-6 of 256, against numpy concatenation of them",
        ours,
        floor,
        goal=4,
    )


def _growth(nodes: int) -> Figure:
    small, large = (random_tree(count, segment=4) for count in (nodes // 10, nodes))
    estimator = DirectBranchTd()

    def convert(tree: Tree[None]) -> object:
        return actor_records(tree, estimator.estimate(tree), packing="segment")

    ours, floor = side_by_side(lambda: convert(large), lambda: convert(small), rounds=3)
    return Figure(
        id="P7",
        what=f"credit and samples per node, {nodes:,} nodes against a tenth of them",
        value=ours / floor / (len(large) / len(small)),
        unit="ratio",
        goal=1.5,
        floor=1.0,
    )


def _memory() -> Figure:
    def bytes_per_token(segments: int) -> float:
        tracemalloc.start()
        tree = fixed_tree((1,) * segments, segment=64)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size / tree.sampled_tokens()

    return Figure(
        id="P8",
        what="tree memory per distinct token, a chain of 1,000 segments against one of 100",
        value=bytes_per_token(1000) / bytes_per_token(100),
        unit="ratio",
        goal=1.1,
        floor=1.0,
    )
