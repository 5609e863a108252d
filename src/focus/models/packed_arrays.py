"""Packed trees as arrays: what a learner makes tensors of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from focus.records.packed_tree import PackedTree

__all__ = ("TokenArrays", "token_arrays")

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenArrays:
    """The columns of `focus.records.TokenColumns`, as arrays."""

    ids: Integers
    parents: Integers
    positions: Integers
    ends: Integers
    loss_mask: Integers
    log_probs: Floats
    weights: Floats
    segments: Integers
    edges: Integers


def token_arrays(packed: PackedTree) -> TokenArrays:
    """A packed tree token by token, as numpy arrays.

    >>> from focus.credit.base import Credit
    >>> from focus.records.packed_tree import pack_tree
    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
    >>> packed = pack_tree(tree, Credit(estimator="by hand", advantages={1: 0.5, 3: -0.5}))
    >>> arrays = token_arrays(packed)
    >>> arrays.parents.tolist(), arrays.weights.tolist()
    ([-1, 0, 1, 2, 3, 3], [0.0, 0.0, 0.0, 0.5, 0.0, -0.5])
    """
    segments = packed.segments
    sizes = np.array([len(segment.ids) for segment in segments], dtype=np.int64)
    nodes, starts, parents, positions, ends = (
        np.array(column, dtype=np.int64)
        for column in zip(*(segment[:5] for segment in segments), strict=True)
    )
    size = int(sizes.sum())
    rows = np.arange(size)
    before = rows - 1
    before[starts] = np.where(parents < 0, -1, (starts + sizes - 1)[parents])
    values = (segment.log_probs or repeat(0.0, len(segment.ids)) for segment in segments)
    return TokenArrays(
        ids=np.fromiter(chain.from_iterable(s.ids for s in segments), np.int64, size),
        parents=before,
        positions=rows - np.repeat(starts - positions, sizes),
        ends=np.repeat(ends, sizes),
        loss_mask=np.repeat(np.array([bool(s.log_probs) for s in segments], np.int64), sizes),
        log_probs=np.fromiter(chain.from_iterable(values), np.float64, size),
        weights=np.repeat(np.array([segment.weight for segment in segments]), sizes),
        segments=np.repeat(np.arange(len(segments)), sizes),
        edges=np.repeat(nodes, sizes),
    )
