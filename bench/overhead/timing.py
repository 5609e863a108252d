"""Processor time of two pieces of work, turn by turn, so that both meet the same machine.

A turn repeats each piece until it has taken some milliseconds, so that the clock's ticks and a
stray interruption weigh little; a ratio is taken within a turn, where both met the same
neighbours, and the median over turns is what counts: one lucky or unlucky turn moves nothing.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median

__all__ = ("seconds", "side_by_side")

Work = Callable[[], object]
_LEAST_S = 0.005
_MOST_CALLS = 200


def side_by_side(ours: Work, floor: Work, *, turns: int = 15, repeats: bool = True) -> float:
    """Time of ours over that of the floor: the median of the ratios of alternating turns.

    Without `repeats` a turn is one call, which finds the caches as another tree left them: for
    work that is mostly about moving memory.

    >>> side_by_side(lambda: sum(range(9)), lambda: sum(range(9)), turns=3) > 0
    True
    """
    calls = [_enough(work) if repeats else 1 for work in (ours, floor)]
    return median(_turn(ours, calls[0]) / _turn(floor, calls[1]) for _ in range(turns))


def seconds(work: Work, *, turns: int = 15) -> float:
    """Median over turns of the processor time of one call."""
    calls = _enough(work)
    return median(_turn(work, calls) for _ in range(turns))


def _enough(work: Work) -> int:
    """Calls that take about as long as a turn should."""
    once = max(_turn(work, 1), 1e-9)
    return max(1, min(_MOST_CALLS, round(_LEAST_S / once)))


def _turn(work: Work, calls: int) -> float:
    """Processor time of one call, with the garbage collector off."""
    gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        for _ in range(calls):
            work()
        return (time.process_time() - started) / calls
    finally:
        gc.enable()
