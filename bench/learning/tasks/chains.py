"""Arithmetic chains of + and - of a given length: a wrong line spoils every line after it."""

from __future__ import annotations

import random
from functools import partial

from bench.learning.tasks.boxed import boxed_messages, boxed_task
from bench.learning.tasks.family import Family

from focus.problem import Problem
from focus.tasks import arithmetic
from focus.tasks.registry import Task

__all__ = ("CHAINS", "SEGMENT_TOKENS", "TOKENS_PER_LINE", "slips_for")

STEPS = {"chain-5": None, "chain-10": 10, "chain-20": 20, "chain-40": 40}
"""Operations per problem; None draws 4 to 6, as the shipped model knows them."""

SEGMENT_TOKENS = {5: 12, 10: 24, 20: 32, 40: 48}
"""By number of steps: segments at which a solution spans about six to nine of them."""

TOKENS_PER_LINE = 11


def _task(name: str) -> Task:
    steps = STEPS[name]

    def draw(split: arithmetic.Split, count: int, seed: int) -> tuple[Problem, ...]:
        return tuple(arithmetic.make_problems(count, seed=seed, steps=steps, split=split))

    return boxed_task(
        name,
        segment_tokens=SEGMENT_TOKENS[steps or 5],
        most_tokens=TOKENS_PER_LINE * (steps or max(arithmetic.STEPS)) + 24,
        draw=draw,
    )


def slips_for(steps: int) -> arithmetic.Slips:
    """A demonstrator who guesses one line in four, and spoils about six solutions in ten."""
    return arithmetic.Slips(guess=0.25, wrong=min(0.6, 3.6 / steps))


def _demonstrate(steps: int, problem: Problem, rng: random.Random) -> str:
    return arithmetic.demonstration(problem, slips=slips_for(steps), rng=rng)


CHAINS = {
    name: Family(
        make_task=partial(_task, name),
        messages=boxed_messages,
        demonstrate=partial(_demonstrate, steps or max(arithmetic.STEPS)),
    )
    for name, steps in STEPS.items()
}
