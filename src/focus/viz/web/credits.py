"""Credit of one tree by every estimator that accepts it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import focus.credit
from focus.credit import Credit, Estimator
from focus.errors import FocusError
from focus.records.tree_store import StoredTree

__all__ = ("Comparison", "comparison", "estimators")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Credit of one tree, by estimator.

    Attributes:
        credits: the stored one first, under the name that it was stored with.
        refused: why an estimator does not accept the tree.
    """

    credits: Mapping[str, Credit]
    refused: Mapping[str, str] = field(default_factory=dict)


def estimators() -> Iterator[Estimator]:
    """Every public estimator with its default settings.

    >>> sorted(type(e).__name__ for e in estimators())[0]
    'DirectBranchTd'
    """
    for name in focus.credit.__all__:
        kind = getattr(focus.credit, name)
        if isinstance(kind, type) and hasattr(kind, "estimate") and dataclasses.is_dataclass(kind):
            yield _default(kind)


def _default(kind: type) -> Estimator:
    made = kind()
    if not isinstance(made, Estimator):
        raise TypeError(f"{kind.__name__} is public and no estimator")
    return made


def comparison(stored: StoredTree) -> Comparison:
    """The stored credit beside what the other estimators give, computed now.

    >>> from focus.testing.trees import build_tree, chain, end, fork
    >>> tree = build_tree(fork(0.5, chain([0.5, 0.5], outcome=1.0), end(0.0)))
    >>> found = comparison(StoredTree(tree=tree))
    >>> found.credits["rloo"].advantages
    {1: 1.0, 2: 1.0, 3: 1.0, 4: -1.0}
    """
    credits: dict[str, Credit] = {}
    refused: dict[str, str] = {}
    if stored.credit is not None:
        credits[stored.credit.estimator] = stored.credit
    for estimator in estimators():
        try:
            credit = estimator.estimate(stored.tree, allow_partial=bool(stored.failures))
        except FocusError as error:
            refused[type(estimator).__name__] = str(error)
        else:
            credits.setdefault(credit.estimator, credit)
    return Comparison(credits=credits, refused=refused)
