"""Draws credit_bias.svg: how far each estimator's mean update points away from the gradient.

    python docs/figures/credit_bias.py

Twenty random games of two binary decisions, every tree enumerated; no sampling error.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from focus.credit import DirectBranchTd, Estimator, Grpo, RefinedTd, Rloo
from focus.testing.exact_gradient import (
    Rule,
    TabularTask,
    exact_gradient,
    expected_update,
    fixed_widths,
    skew,
    stop_at_success,
)

GAMES = [TabularTask.random(random.Random(seed), depth=2) for seed in range(20)]
UNBIASED = DirectBranchTd(leave_one_out=True, reach=True, mc_backup=True)

MakeRule = Callable[[TabularTask], Rule]


def chains(task: TabularTask) -> Rule:
    return fixed_widths(2, 1)


def two_by_two(task: TabularTask) -> Rule:
    return fixed_widths(2, 2)


def adaptive(task: TabularTask) -> Rule:
    return stop_at_success(task, most=3)


def critic_in_back_up(strength: float) -> DirectBranchTd:
    return DirectBranchTd(prior_strength=strength, leave_one_out=True, reach=True)


ROWS: list[tuple[str, Estimator, MakeRule]] = [
    ("Rloo, 2 chains", Rloo(), chains),
    ("DirectBranchTd(leave_one_out, reach, mc_backup)", UNBIASED, two_by_two),
    ("… critic in the back-up, κ = 0.25", critic_in_back_up(0.25), two_by_two),
    ("… critic in the back-up, κ = 1", critic_in_back_up(1.0), two_by_two),
    ("… critic in the back-up, κ = 4", critic_in_back_up(4.0), two_by_two),
    (
        "… no reach weights",
        DirectBranchTd(leave_one_out=True, mc_backup=True),
        two_by_two,
    ),
    ("… rollouts bought until one succeeds", UNBIASED, adaptive),
    ("DirectBranchTd(), the default", DirectBranchTd(), two_by_two),
    ("RefinedTd()", RefinedTd(), two_by_two),
    ("Grpo(), 2 chains", Grpo(), chains),
]


def mean_skew(estimator: Estimator, make_rule: MakeRule) -> float:
    return fmean(
        skew(expected_update(estimator, game, make_rule(game)), exact_gradient(game))
        for game in GAMES
    )


def figure() -> str:
    """The whole SVG."""
    left, scale, step = 330, 600, 24
    lines = []
    for row, (label, estimator, make_rule) in enumerate(ROWS):
        value, y = mean_skew(estimator, make_rule), 30 + step * row
        width = max(1, round(scale * value))
        lines += [
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label}</text>',
            f'<rect x="{left}" y="{y}" width="{width}" height="16" fill="#4472a8"/>',
            f'<text x="{left + width + 6}" y="{y + 12}">{value:.2f}</text>',
        ]
    height = 40 + step * len(ROWS)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="760" height="{height}" fill="white"/>',
            f'<text x="{left}" y="18">bias left at the best step size (0 = exact direction)</text>',
            *lines,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(figure(), encoding="utf-8")
