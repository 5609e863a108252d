"""How many times fewer tokens than the best peer: the claim that is to be tested."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

__all__ = ("Claim", "claims")

Spent = Mapping[str, Sequence[float]]
"""By method, tokens to the threshold of each seed; infinite where it was not reached."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One of our methods against the peer that needed fewest tokens.

    Attributes:
        method, peer: which.
        ratio: the peer's median tokens to the threshold over ours; above 1 ours is better.
            None where one of them did not get there in most seeds.
        ratio_ci95: percentile bootstrap over the seeds of all, the best peer chosen anew in
            each draw; an end is None where it is not finite.
    """

    method: str
    peer: str
    ratio: float | None
    ratio_ci95: tuple[float | None, float | None]


def claims(spent: Spent, *, peers: Collection[str], draws: int = 2000) -> list[Claim]:
    """Every method that is no peer; none where no peer was run.

    >>> (found,) = claims({"grpo": [400.0] * 3, "rloo": [300.0] * 3, "ours": [100.0] * 3},
    ...                   peers={"grpo", "rloo"})
    >>> found.peer, found.ratio, found.ratio_ci95
    ('rloo', 3.0, (3.0, 3.0))
    """
    theirs = {name: own for name, own in spent.items() if name in peers}
    if not theirs:
        return []
    best = min(theirs, key=lambda name: _median(theirs[name]))
    return [
        Claim(
            method=name,
            peer=best,
            ratio=_finite(_median(theirs[best]) / _median(own)),
            ratio_ci95=_interval(theirs, own, draws),
        )
        for name, own in spent.items()
        if name not in peers
    ]


def _interval(theirs: Spent, own: Sequence[float], draws: int) -> tuple[float | None, float | None]:
    rng = random.Random(0)
    ratios = []
    for _ in range(draws):
        best = min(_median(rng.choices(seeds, k=len(seeds))) for seeds in theirs.values())
        ratio = best / _median(rng.choices(own, k=len(own)))
        # Where neither gets there, neither is ahead.
        ratios.append(1.0 if math.isnan(ratio) else ratio)
    ratios.sort()
    return _finite(ratios[round(0.025 * draws)]), _finite(ratios[round(0.975 * draws) - 1])


def _median(values: Sequence[float]) -> float:
    """The lower one of an even number; at least one token, so that ratios exist."""
    return max(1.0, sorted(values)[(len(values) - 1) // 2])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None
