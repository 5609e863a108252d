"""What an estimator returns, and the checks that all of them share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from focus.errors import CreditError
from focus.tree import NodeId, Tree

__all__ = ("Credit", "Estimator", "Target", "prior_value")


@dataclass(frozen=True, slots=True)
class Target:
    """A critic regression target.

    Attributes:
        value: in return units.
        count: direct branches or suffix samples it averages, ≥ 1.
    """

    value: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Credit:
    """One weight per trained edge and one target per checkpoint.

    Attributes:
        estimator: its name.
        advantages: by head node of the edge; edges without one are not trained.
        targets: by checkpoint.
        values: refined value V̂ by checkpoint, where the estimator has one.
        diagnostics: named numbers by node.
    """

    estimator: str
    advantages: Mapping[NodeId, float]
    targets: Mapping[NodeId, Target] = field(default_factory=dict)
    values: Mapping[NodeId, float] = field(default_factory=dict)
    diagnostics: Mapping[NodeId, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, numbers in (
            ("advantage", self.advantages),
            ("value", self.values),
            ("target", {node: target.value for node, target in self.targets.items()}),
        ):
            for node, number in numbers.items():
                if not math.isfinite(number):
                    raise CreditError(f"{self.estimator}: node {node}: {name} is {number}")


@runtime_checkable
class Estimator(Protocol):
    """Turns a settled tree into credit; pure, never changes the tree.

    `prior_strength` (κ) is None when the estimator takes the tree's own
    `tree.header.returns`, or does not use one.
    """

    @property
    def prior_strength(self) -> float | None: ...

    def estimate(self, tree: Tree[Any]) -> Credit:
        """Credit for every trainable edge.

        Raises:
            CreditError: the tree breaks an assumption of this estimator.
        """
        ...


def prior_value(tree: Tree[Any], node_id: NodeId, *, estimator: str) -> float:
    """The critic's V at a nonterminal; a missing or non-finite one is an error, not zero."""
    value = tree[node_id].value
    if value is None or not math.isfinite(value):
        raise CreditError(
            f"{estimator}: node {node_id} has no usable critic value ({value}); "
            "the prediction failed when the tree was collected"
        )
    return value
