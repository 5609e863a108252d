"""Processor time of two pieces of work, turn by turn, so that both meet the same machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ("side_by_side",)


def side_by_side(
    ours: Callable[[], object], floor: Callable[[], object], *, rounds: int = 7
) -> tuple[float, float]:
    """Least seconds of processor time of each, over alternating rounds."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, work in enumerate((ours, floor)):
            gc.collect()
            gc.disable()
            started = time.process_time()
            work()
            best[index] = min(best[index], time.process_time() - started)
            gc.enable()
    return best[0], best[1]
