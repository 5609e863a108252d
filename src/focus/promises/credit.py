"""A2, A3, A5: same inputs, exact numbers, one sampling law."""

from __future__ import annotations

from focus.promises.agreement import agreed
from focus.promises.base import Promise
from focus.promises.oracles import exact_advantages
from focus.promises.replays import replayed

__all__ = ("ROWS",)

ROWS = (
    Promise(
        id="A2",
        promise="the same replies give the same bytes, in any order and with any permits",
        target=0,
        unit="exports that differ",
        measure=replayed,
    ),
    Promise(
        id="A3",
        promise="advantages equal an independent oracle in exact fractions",
        target=1e-12,
        unit="largest difference",
        measure=exact_advantages,
    ),
    Promise(
        id="A5",
        promise="a sampler that disagrees with its trainer is refused before the first request",
        target=0,
        unit="disagreements accepted",
        measure=agreed,
    ),
)
