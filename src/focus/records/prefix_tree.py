"""Sequences that share prefixes, laid out so that each distinct token is computed once.

A learner with tree attention reads such a layout in one pass: token i attends to token j
iff j stands on the path from i's root to i. Lossless: each sequence's values are those of
its own causal pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from focus.tokens import TokenIds

__all__ = ("PrefixTree", "distinct_tokens", "prefix_trees")


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Distinct tokens of some sequences, depth first.

    Attributes:
        ids: one id per distinct (prefix, token).
        positions: place of each in its sequence, from 0.
        ends: one past the last token below each; j is i's ancestor or i itself iff
            j <= i < ends[j].
        paths: per member, the index of each of its tokens, in order.
        members: which sequences these are.
    """

    ids: TokenIds
    positions: tuple[int, ...]
    ends: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    members: tuple[int, ...]


def prefix_trees(sequences: Sequence[TokenIds], *, most_tokens: int) -> list[PrefixTree]:
    """Merge `sequences` into trees of at most `most_tokens` distinct tokens.

    Every sequence is a member of exactly one tree; one that is longer than the limit has a
    tree to itself. Sequences are taken in sorted order, so what shares a prefix is together;
    a tree that is full ends where least has to be repeated in the next one.

    >>> [tree] = prefix_trees([(1, 2, 3), (1, 2), (1, 4)], most_tokens=10)
    >>> tree.ids, tree.positions, tree.ends
    ((1, 2, 3, 4), (0, 1, 2, 1), (4, 3, 3, 4))
    >>> dict(zip(tree.members, tree.paths))
    {1: (0, 1), 0: (0, 1, 2), 2: (0, 3)}
    """
    order = sorted(range(len(sequences)), key=lambda index: sequences[index])
    return [_tree(sequences, run) for run in _runs(sequences, order, most_tokens)]


def _runs(
    sequences: Sequence[TokenIds], order: Sequence[int], most_tokens: int
) -> Iterator[list[int]]:
    """Cut the sorted order where one more sequence would exceed the limit, or before.

    Whatever a sequence shares with the one before it is repeated if a cut parts them. The
    cut falls where that is least in the later half of a full run.
    """
    run: list[int] = []
    sizes: list[int] = []
    repeats: list[int] = []
    waiting = list(reversed(order))
    while waiting:
        index = waiting.pop()
        ids = sequences[index]
        shared = _shared(sequences[run[-1]], ids) if run else 0
        size = (sizes[-1] if run else 0) + len(ids) - shared
        if run and size > most_tokens:
            cut = _cheapest(sizes, [*repeats[1:], shared], most_tokens // 2)
            waiting += [index, *reversed(run[cut:])]
            yield run[:cut]
            run, sizes, repeats = [], [], []
        else:
            run.append(index)
            sizes.append(size)
            repeats.append(shared)
    if run:
        yield run


def _cheapest(sizes: Sequence[int], repeats: Sequence[int], least: int) -> int:
    """How many sequences to keep: of those cuts that leave `least` tokens, the cheapest last."""
    cuts = [cut for cut, size in enumerate(sizes) if size >= least] or [len(sizes) - 1]
    return 1 + min(reversed(cuts), key=lambda cut: repeats[cut])


def distinct_tokens(sequences: Sequence[TokenIds]) -> int:
    """Tokens of `sequences`, those of a shared prefix once: what no learner can do without.

    >>> distinct_tokens([(1, 2, 3), (1, 2), (1, 4), (2,)])
    5
    """
    before: TokenIds = ()
    total = 0
    for ids in sorted(sequences):
        total += len(ids) - _shared(before, ids)
        before = ids
    return total


def _tree(sequences: Sequence[TokenIds], run: Sequence[int]) -> PrefixTree:
    ids: list[int] = []
    positions: list[int] = []
    ends: list[int] = []
    path: tuple[int, ...] = ()
    paths = []
    before: TokenIds = ()
    for index in run:
        sequence = sequences[index]
        shared = _shared(before, sequence)
        for left in path[shared:]:
            ends[left] = len(ids)
        added = range(len(ids), len(ids) + len(sequence) - shared)
        ids.extend(sequence[shared:])
        positions.extend(range(shared, len(sequence)))
        ends.extend(added)
        path = (*path[:shared], *added)
        paths.append(path)
        before = sequence
    for left in path:
        ends[left] = len(ids)
    return PrefixTree(tuple(ids), tuple(positions), tuple(ends), tuple(paths), tuple(run))


def _shared(one: TokenIds, other: TokenIds) -> int:
    """Length of the common prefix, by halving: slices are compared far faster than ids."""
    equal, differ = 0, min(len(one), len(other)) + 1
    while differ - equal > 1:
        middle = (equal + differ) // 2
        if one[equal:middle] == other[equal:middle]:
            equal = middle
        else:
            differ = middle
    return equal
