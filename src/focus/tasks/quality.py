"""How often the ``math`` kind is wrong: hand-checked pairs, by family.

    python -m focus.tasks.quality

The verdicts in ``data/math_pairs.jsonl`` are a person's, not the verifier's. Percent signs
and units count as spelling: "50", "50 %" and "0.5" answer a reference of 50 %.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import resources

import anyio

from focus.tasks.grading import Grader

__all__ = ("UNSAFE_FAMILIES", "FamilyQuality", "Pair", "grading_pairs", "measure", "wilson")

UNSAFE_FAMILIES = ("bases", "complex", "equations")
"""Families with known wrong verdicts; all others have none in the table.

``bases``: digits are compared and the base is not. ``complex``: i is a letter, so i² is
not −1. ``equations``: the last side counts, so 4 = 5 answers 5.
"""

Grade = Callable[[str, str], Awaitable[float]]

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Pair:
    """One reply, the reference, and whether a person says that they agree."""

    family: str
    reference: str
    text: str
    right: bool


@dataclass(frozen=True, slots=True)
class FamilyQuality:
    """Wrong verdicts in one family.

    Attributes:
        right, wrong: pairs that agree and that don't.
        false_negatives: of the right ones, those graded 0.
        false_positives: of the wrong ones, those graded 1.
    """

    family: str
    right: int
    wrong: int
    false_negatives: int
    false_positives: int


def grading_pairs() -> tuple[Pair, ...]:
    """The table, in file order."""
    text = resources.files("focus.tasks").joinpath("data/math_pairs.jsonl").read_text("utf-8")
    return tuple(Pair(**json.loads(line)) for line in text.split("\n") if line)


async def measure(grade: Grade, pairs: Sequence[Pair]) -> tuple[FamilyQuality, ...]:
    """Grade every pair with `grade`; families in alphabetical order."""
    cells: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for pair in pairs:
        is_right = await grade(pair.text, pair.reference) == 1.0
        cell = cells[pair.family]
        cell[0 if pair.right else 1] += 1
        if is_right != pair.right:
            cell[2 if pair.right else 3] += 1
    return tuple(FamilyQuality(family, *cells[family]) for family in sorted(cells))


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """95 % Wilson score interval of a rate: never of width zero, nor outside [0, 1].

    >>> low, high = wilson(0, 100)
    >>> low, round(high, 3)
    (0.0, 0.037)
    """
    if trials == 0:
        return (0.0, 1.0)
    rate, square = hits / trials, _Z95**2 / trials
    middle = rate + square / 2
    half = _Z95 * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials))
    low, high = (middle - half) / (1 + square), (middle + half) / (1 + square)
    return (max(0.0, low) if hits else 0.0, min(1.0, high) if hits < trials else 1.0)


async def _main() -> None:
    async with Grader() as grader:
        rows = await measure(grader.grade, grading_pairs())
    print("| family | pairs | false positives | 95 % | false negatives | 95 % |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        positive, negative = (
            wilson(row.false_positives, row.wrong),
            wilson(row.false_negatives, row.right),
        )
        print(
            f"| {row.family} | {row.right + row.wrong} "
            f"| {row.false_positives} of {row.wrong} | {positive[0]:.1%}–{positive[1]:.1%} "
            f"| {row.false_negatives} of {row.right} | {negative[0]:.1%}–{negative[1]:.1%} |"
        )


if __name__ == "__main__":
    anyio.run(_main)
