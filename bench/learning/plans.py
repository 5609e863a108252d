"""Searches as functions of the budget, and what a row of the comparison is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Literal

from focus import Concurrency, FixedWidth, Phase, Search
from focus.credit import Estimator
from focus.search import Allocator, EachCheckpoint, Edges, RootOnly

__all__ = (
    "Method",
    "Plan",
    "alone",
    "cascade",
    "flat",
    "rollouts_then",
    "spo",
    "three_levels",
    "two_phase",
    "until_mixed",
    "vine",
)

Plan = Callable[[int, float], Search]
"""A search from the tokens per prompt and those of an average solution."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the comparison.

    Attributes:
        search: from the tokens per prompt and those of an average solution.
        credit: weights, once the critic steers or where there is none.
        warm_credit: weights before the critic has passed its gate.
        critic: ``"none"``; ``"learned"`` is trained every round and values checkpoints
            once it has passed the gate; ``"free"`` values them from the first round on;
            ``"token"`` values every token, for `token_decay`, and no checkpoint.
        values: what the learned critic is: a value network, or a regression on surprisal.
        token_decay: λ of the generalised advantage over tokens that replaces the weights.
        joined: segments of the task that make one edge.
        refills: prompts whose weights are all 0 are left out of the update, and up to so
            many more batches are drawn to take their places; None keeps every prompt.
        about: whose idea it is.
    """

    search: Plan
    credit: Estimator
    warm_credit: Estimator | None = None
    critic: Literal["none", "learned", "free", "token"] = "none"
    values: Literal["network", "surprisal"] = "network"
    token_decay: float = 0.95
    joined: int = 1
    refills: int | None = None
    about: str = ""


def flat(tokens: int, length: float, *, least: int = 2) -> Search:
    """As many independent rollouts as the budget buys; two to be compared in any case."""
    rollouts = max(least, round(tokens / length))
    return Search.flat(rollouts, concurrency=rollouts)


def alone(tokens: int, length: float) -> Search:
    """Flat rollouts, one if no more fit: a critic compares one with itself."""
    return flat(tokens, length, least=1)


def until_mixed(allocator: Allocator, *, most: float) -> Plan:
    """Two rollouts, and where they end alike more by a ranking, one after another.

    Until two leaves differ, or `most` times the budget is spent.
    """

    def search(tokens: int, length: float) -> Search:
        more = max(1, round(most * tokens - 2 * length))
        return Search(
            [
                Phase(RootOnly(), attempts=2, gate=Concurrency(2)),
                Phase(allocator, tokens=more, until_mixed=True),
            ],
            concurrency=1,
        )

    return search


def vine(probes: int) -> Plan:
    """Rollouts, and probes from each of their checkpoints."""

    def search(tokens: int, length: float) -> Search:
        # Probes from each of about six checkpoints cost half a solution each.
        rollouts = max(1, round(tokens / (length * (1 + 3 * probes))))
        phases = [
            Phase(RootOnly(), attempts=rollouts, gate=Concurrency(rollouts)),
            Phase(EachCheckpoint(probes), attempts=10**6, gate=Concurrency(probes)),
        ]
        return Search(phases, concurrency=8)

    return search


def spo(tokens: int, length: float) -> Search:
    """Widths 4-2-2, or 3-2 where the budget holds fewer than six solutions."""
    widths = (4, 2, 2) if tokens / length >= 6 else (3, 2)
    phase = Phase(FixedWidth(widths), attempts=10**6, extent=Edges(1), gate=Concurrency(8))
    return Search([phase], concurrency=8)


_WIDTHS = ((4, 3, 2), (4, 2, 2), (3, 2, 2), (2, 2, 2), (2, 2, 1), (2, 1, 1))


def three_levels(tokens: int, length: float) -> Search:
    """The widest of a few trees of edges of a third of a solution that fit the budget.

    So every part of a solution has siblings to be compared with, as in SPO's 6-6-6. The
    narrowest where none fits.
    """
    fits = [w for w in _WIDTHS if _solutions(w) * length <= tokens * 1.05]
    widths = fits[0] if fits else _WIDTHS[-1]
    phase = Phase(FixedWidth(widths), attempts=10**6, extent=Edges(1), gate=Concurrency(8))
    return Search([phase], concurrency=8)


def _solutions(widths: tuple[int, ...]) -> float:
    """Edges of such a tree, in whole solutions.

    >>> _solutions((3, 2, 2))
    7.0
    """
    return sum(accumulate(widths, mul)) / len(widths)


def two_phase(tokens: int, length: float) -> Search:
    """The library's own default."""
    return Search.two_phase(tokens=tokens)


def cascade(tokens: int, length: float) -> Search:
    """Rollouts in lockstep that branch where they stand."""
    return Search.cascade(tokens=tokens)


def rollouts_then(allocator: Allocator, *, rollouts: int | None = None, least: int = 2) -> Plan:
    """Some rollouts from the prompt, then branches by a ranking.

    `rollouts` of them where the budget holds more than that; else what half of it buys,
    `least` in any case.
    """

    def search(tokens: int, length: float) -> Search:
        first = max(least, round(tokens / length / 2))
        if rollouts is not None and rollouts * length < tokens:
            first = rollouts
        return Search(
            [
                Phase(RootOnly(), attempts=first, gate=Concurrency(first)),
                Phase(allocator, tokens=max(1, tokens - round(first * length))),
            ],
            concurrency=4,
        )

    return search
