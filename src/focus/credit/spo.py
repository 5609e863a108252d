"""Credit of fixed-width trees from outcomes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from focus.credit.base import Credit, CriticFree
from focus.credit.forks import Forks, back_up_means
from focus.tree import Tree

__all__ = ("SpoTree",)

_NAME = "spo_tree"


@dataclass(frozen=True, kw_only=True)
class SpoTree(CriticFree):
    """A(e) = c(e) − Ḡ(h): a branch against the plain mean of all branches of its checkpoint.

    c(e) = r(e) + γ^d(e)·Ḡ(h'), Ḡ the mean of c over the direct branches, 0 at a terminal.
    No critic is read, and there are no targets for one; every leaf must be finished. An edge
    without siblings gets 0: alone, it says nothing about choices. This is SPO's tree form
    with the segment as the unit. Source: docs/concepts/credit.md, eq. 8.

    Unbiased: no. A branch sits in its own baseline, which scales its credit by 1 − 1/K, and
    edges far below count once for each branch that was bought.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(None, fork(None, end(1.0), end(0.0)), end(0.0)))
    >>> SpoTree().estimate(tree).advantages
    {1: 0.25, 2: 0.5, 3: -0.5, 4: -0.25}
    """

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights of a tree whose leaves all ended.

        Raises:
            CreditError: a leaf is unfinished, or a return is not finite.
        """
        forks = Forks.of(tree)
        backup = back_up_means(tree, forks, tree.header.returns, estimator=_NAME)
        values, over, parents = backup.values, backup.over_edge, tree.columns.parents
        return Credit(
            estimator=_NAME,
            advantages={head: over[head] - values[parents[head]] for head in forks.trained},
            values={node: values[node] for node in forks.nodes},
        )
