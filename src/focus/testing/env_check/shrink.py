"""The shortest sequence that still breaks a law."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

__all__ = ("shrunk",)

T = TypeVar("T")

_MOST_TRIALS = 200


async def shrunk(items: Sequence[T], fails: Callable[[list[T]], Awaitable[bool]]) -> list[T]:
    """Leave out items, from the end, as long as what is left still fails.

    Args:
        items: a sequence that fails, of which any part is legal.
        fails: asked at most 200 times.
    """
    best = list(items)
    trials, place = 0, len(best) - 1
    while place >= 0 and trials < _MOST_TRIALS:
        fewer = best[:place] + best[place + 1 :]
        trials += 1
        if await fails(fewer):
            best = fewer
            place = min(place, len(best)) - 1
        else:
            place -= 1
    return best
