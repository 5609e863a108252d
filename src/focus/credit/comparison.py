"""Several estimators on the same trees: the same rollouts, credited otherwise."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from focus.credit.base import Credit, Estimator
from focus.credit.direct_branch import DirectBranchTd
from focus.credit.grpo import Grpo
from focus.credit.lambda_td import LambdaTd
from focus.credit.refined import RefinedTd
from focus.credit.rloo import Rloo
from focus.credit.spo import SpoTree
from focus.credit.tree_grpo import TreeGrpo
from focus.credit.tree_rl import TreeRl
from focus.credit.vine_ppo import VinePpo
from focus.errors import ConfigError, CreditError
from focus.tree import Tree

__all__ = ("ESTIMATORS", "Comparison", "compare", "credits_of", "estimator_named")

ESTIMATORS: Mapping[str, Callable[..., Estimator]] = {
    "direct-branch": DirectBranchTd,
    "refined": RefinedTd,
    "lambda": LambdaTd,
    "grpo": Grpo,
    "rloo": Rloo,
    "vine-ppo": VinePpo,
    "spo-tree": SpoTree,
    "tree-grpo": TreeGrpo,
    "tree-rl": TreeRl,
}
"""By the names that the command line knows."""


def estimator_named(name: str, options: Mapping[str, Any] | None = None) -> Estimator:
    """The estimator of that name with these options.

    Raises:
        ConfigError: no such estimator or option, or a value it refuses.

    >>> estimator_named("lambda", {"decay": 0.5})
    LambdaTd(decay=0.5, prior_strength=None)
    """
    make = ESTIMATORS.get(name)
    if make is None:
        raise ConfigError(f"unknown estimator {name!r}; known: {', '.join(ESTIMATORS)}")
    known = list(inspect.signature(make).parameters)
    if unknown := sorted(set(options or {}) - set(known)):
        listed = ", ".join(known) or "none"
        raise ConfigError(f"{name} has no option {', '.join(unknown)}; its options: {listed}")
    try:
        return make(**(options or {}))
    except TypeError as error:
        raise ConfigError(f"{name}: {error}") from error


def credits_of(
    tree: Tree[Any], estimators: Mapping[str, Estimator]
) -> dict[str, Credit | CreditError]:
    """What each estimator gives, or why it refuses the tree.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
    >>> found = credits_of(tree, {"grpo": Grpo(), "refined": RefinedTd()})
    >>> str(found["grpo"])
    'grpo: node 1 has 2 children; only independent rollouts from the root can be compared'
    """
    found: dict[str, Credit | CreditError] = {}
    for name, estimator in estimators.items():
        try:
            found[name] = estimator.estimate(tree)
        except CreditError as refusal:
            found[name] = refusal
    return found


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One estimator over many trees, next to a reference.

    Attributes:
        name: of the estimator.
        trees: trees it accepted.
        refusals: trees it refused, by reason.
        edges: edges with a weight.
        nonzero: of these, edges whose weight is not 0.
        mean_size: mean |A| over the edges; None without one.
        spread: standard deviation of A over the edges; None without one.
        cosine: Σ A·B / (‖A‖·‖B‖) with the reference's B over edges that both weigh, a
            missing weight being 0 on trees that both accept; None where one is all zero.
        same_sign: share of edges with both weights non-zero whose signs agree; None without.
    """

    name: str
    trees: int
    refusals: Mapping[str, int] = field(default_factory=dict)
    edges: int = 0
    nonzero: int = 0
    mean_size: float | None = None
    spread: float | None = None
    cosine: float | None = None
    same_sign: float | None = None


def compare(trees: Iterable[Tree[Any]], estimators: Mapping[str, Estimator]) -> list[Comparison]:
    """Every estimator on every tree; the first one is the reference.

    Raises:
        ConfigError: there is no estimator.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.5, end(1.0), end(0.0)))
    >>> rows = compare([tree], {"rloo": Rloo(), "grpo": Grpo(scale=False)})
    >>> [(row.name, row.mean_size, round(row.cosine, 6)) for row in rows]
    [('rloo', 1.0, 1.0), ('grpo', 0.5, 1.0)]
    """
    if not estimators:
        raise ConfigError("name at least one estimator to compare")
    per_tree = [credits_of(tree, estimators) for tree in trees]
    reference = next(iter(estimators))
    return [_compared(name, reference, per_tree) for name in estimators]


def _compared(
    name: str, reference: str, per_tree: Sequence[Mapping[str, Credit | CreditError]]
) -> Comparison:
    own = [credit for found in per_tree if isinstance(credit := found[name], Credit)]
    weights = [a for credit in own for a in credit.advantages.values()]
    pairs = [pair for found in per_tree for pair in _pairs(found[name], found[reference])]
    return Comparison(
        name=name,
        trees=len(own),
        refusals=_reasons(found[name] for found in per_tree),
        edges=len(weights),
        nonzero=sum(weight != 0 for weight in weights),
        mean_size=math.fsum(map(abs, weights)) / len(weights) if weights else None,
        spread=_deviation(weights),
        cosine=_cosine(pairs),
        same_sign=_agreement(pairs),
    )


def _reasons(found: Iterable[Credit | CreditError]) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for refusal in found:
        if isinstance(refusal, CreditError):
            reasons[str(refusal)] = reasons.get(str(refusal), 0) + 1
    return reasons


def _pairs(one: Credit | CreditError, other: Credit | CreditError) -> list[tuple[float, float]]:
    if isinstance(one, CreditError) or isinstance(other, CreditError):
        return []
    heads = one.advantages.keys() | other.advantages.keys()
    return [(one.advantages.get(h, 0.0), other.advantages.get(h, 0.0)) for h in sorted(heads)]


def _deviation(weights: Sequence[float]) -> float | None:
    if not weights:
        return None
    mean = math.fsum(weights) / len(weights)
    return math.sqrt(math.fsum((weight - mean) ** 2 for weight in weights) / len(weights))


def _cosine(pairs: Sequence[tuple[float, float]]) -> float | None:
    sizes = [math.hypot(*side) for side in zip(*pairs, strict=True)] if pairs else [0.0]
    if not all(sizes):
        return None
    return math.fsum(a * b for a, b in pairs) / math.prod(sizes)


def _agreement(pairs: Sequence[tuple[float, float]]) -> float | None:
    signed = [(a > 0) == (b > 0) for a, b in pairs if a and b]
    return sum(signed) / len(signed) if signed else None
