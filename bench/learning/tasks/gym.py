"""Procedural reasoning: generators of reasoning-gym, graded by the package's own scorers.

count_bits is solved by halving, one line a bit, with the ones seen so far behind the colon:

    13: 1
    6: 1
    3: 2
    1: 3
    \\boxed{3}

chain_sum is solved term by term, like the bench's own chains, but with terms of two digits and
values of either sign. A question's hash decides its split, whatever the seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench.learning.tasks.boxed import boxed_messages, boxed_task
from bench.learning.tasks.family import Family

from focus.problem import Problem
from focus.tasks.arithmetic import Slips, Split
from focus.tasks.gym import gym_problems
from focus.tasks.gym_catalogue import open_dataset
from focus.tasks.registry import Task

__all__ = ("GYM", "bits_demonstration", "score", "sum_demonstration")

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "count_bits": {"min_n": 4096, "max_n": 65535},
    "chain_sum": {"min_terms": 8, "max_terms": 12, "min_digits": 1, "max_digits": 2},
}

SLIPS = Slips(guess=0.25, wrong=0.3)
"""Of about 13 lines one is wrong, so that six solutions in ten are spoilt."""

_TERM = re.compile(r"([+-]?) ?(\d+)")


def score(answer: str, label: Mapping[str, Any]) -> float:
    """The generator's own score of an answer, in [0, 1].

    >>> (problem,) = gym_problems("count_bits", count=1, config=CONFIGS["count_bits"])
    >>> score(problem.label["entry"]["answer"], problem.label), score("junk", problem.label)
    (1.0, 0.0)
    """
    dataset = open_dataset(label["dataset"], label["config"])
    return float(dataset.score_answer(answer, entry=label["entry"]))


def bits_demonstration(problem: Problem, *, slips: Slips, rng: random.Random) -> str:
    """Halve until nothing is left; a guessed line ("~" for ":") may miscount or mishalve."""
    number, ones = int(_numbers(problem)[-1]), 0
    lines = []
    while number:
        ones, mark = ones + number % 2, ":"
        if rng.random() < slips.guess:
            mark = "~"
            if rng.random() < slips.wrong:
                ones += rng.choice((-1, 1)) if ones > 1 else 1
        lines.append(f"{number}{mark} {ones}")
        number //= 2
    return "\n".join([*lines, rf"\boxed{{{ones}}}"])


def sum_demonstration(problem: Problem, *, slips: Slips, rng: random.Random) -> str:
    """Add term by term; a guess ("~" for "=") may be off by one or by ten."""
    expression = problem.messages[-1].content.partition(": ")[2]
    value, *changes = [int(sign + digits) for sign, digits in _TERM.findall(expression)]
    lines = []
    for change in changes:
        before, value, mark = value, value + change, "="
        if rng.random() < slips.guess:
            mark = "~"
            if rng.random() < slips.wrong:
                value += rng.choice((-10, -1, 1, 10))
        sign = "-" if change < 0 else "+"
        lines.append(f"{before} {sign} {abs(change)} {mark} {value}")
    return "\n".join([*lines, rf"\boxed{{{value}}}"])


def _numbers(problem: Problem) -> list[str]:
    return re.findall(r"\d+", problem.messages[-1].content)


def _task(generator: str, segment_tokens: int, most_tokens: int) -> Task:
    config = CONFIGS[generator]

    def draw(split: Split, count: int, seed: int) -> tuple[Problem, ...]:
        return gym_problems(generator, count=count, split=split, seed=seed, config=config)

    return boxed_task(
        f"gym-{generator}",
        segment_tokens=segment_tokens,
        most_tokens=most_tokens,
        draw=draw,
        grade=score,
    )


def _family(
    generator: str,
    demonstrate: Callable[..., str],
    *,
    segment_tokens: int,
    most_tokens: int,
) -> Family:
    return Family(
        make_task=partial(_task, generator, segment_tokens, most_tokens),
        messages=boxed_messages,
        demonstrate=lambda problem, rng: demonstrate(problem, slips=SLIPS, rng=rng),
    )


GYM = {
    "gym-count_bits": _family("count_bits", bits_demonstration, segment_tokens=24, most_tokens=168),
    "gym-chain_sum": _family("chain_sum", sum_demonstration, segment_tokens=16, most_tokens=176),
}
