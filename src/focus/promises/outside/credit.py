"""Direct-branch credit, computed anew from the stored tree: in fractions and in floats.

For an edge e to a child h' with return c(e) = r(e) + γ^d · V̂(h'), a checkpoint with critic
value V and K counted children has V̂ = V + Σ(c − V)/(κ + K), and A(e) = c(e) − V̂.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .reading import Export

__all__ = ("Credited", "credited")


@dataclass(frozen=True)
class Credited:
    """Advantages and targets by node; exact ones beside those of the documented float formula."""

    advantages: dict[int, float]
    exact: dict[int, Fraction]
    targets: dict[int, tuple[float, int]]


def credited(export: Export) -> Credited:
    """Credit of one tree. A child without a value counts nowhere, as after a failure."""
    floats = _Backup(export, float)
    exact = _Backup(export, Fraction)
    advantages, fractions, targets = {}, {}, {}
    for number, node in enumerate(export.nodes):
        heads = [child for child in export.children[number] if child in floats.over]
        if node["terminal"] or node["value"] is None or not heads:
            continue
        targets[number] = (math.fsum(floats.over[h] for h in heads) / len(heads), len(heads))
        for head in heads:
            if any(True for _ in export.sampled(head)):
                advantages[head] = floats.over[head] - floats.values[number]
                fractions[head] = exact.over[head] - exact.values[number]
    return Credited(advantages, fractions, targets)


class _Backup:
    """V̂ of each node and c of each edge, leaves first, in one kind of number."""

    def __init__(self, export: Export, number: Any) -> None:
        self._number = number
        self._returns = export.header["returns"]
        self.values: dict[int, Any] = {}
        self.over: dict[int, Any] = {}
        for index in reversed(range(len(export.nodes))):
            self._add(export, index)

    def _add(self, export: Export, index: int) -> None:
        node = export.nodes[index]
        if node["terminal"]:
            self.values[index] = self._number(0)
        elif node["value"] is not None:
            self.values[index] = self._blended(export, index)
        else:
            return
        if node["edge"] is not None:
            self.over[index] = self._return(node["edge"], self.values[index])

    def _blended(self, export: Export, index: int) -> Any:
        prior = self._number(export.nodes[index]["value"])
        sample = [self.over[child] for child in export.children[index] if child in self.over]
        total = _sum(sample) - len(sample) * prior
        return prior + total / (self._number(self._returns["prior_strength"]) + len(sample))

    def _return(self, edge: dict[str, Any], successor: Any) -> Any:
        number, returns = self._number, self._returns
        reward = number(edge["reward"]) + number(returns["step_weight"]) * number(
            edge["step_reward"]
        )
        return reward + number(returns["discount"]) ** edge["duration"] * successor


def _sum(values: list[Any]) -> Any:
    """Rounded once for floats, exact for fractions."""
    if values and isinstance(values[0], Fraction):
        return sum(values, Fraction(0))
    return math.fsum(values)
