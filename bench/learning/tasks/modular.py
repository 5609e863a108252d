"""Chains of +, - and * modulo 12: an error can be undone.

"Compute modulo 12: 7 + 5 * 3 - 8." is solved from left to right, one operation each:

    7 + 5 = 0
    0 * 3 = 0
    0 - 8 = 4
    \\boxed{4}

Most factors share a divisor with the modulus, so multiplying maps different values to the same
one: of solutions with a wrong line about a fifth end right at 10 steps, two fifths at 20 and
three at 40. What a wrong line costs depends on what follows it.
"""

from __future__ import annotations

import random
import re
from functools import partial

from bench.learning.tasks.boxed import boxed_messages, boxed_task
from bench.learning.tasks.chains import SEGMENT_TOKENS, TOKENS_PER_LINE
from bench.learning.tasks.family import Family

from focus.errors import ProblemError
from focus.problem import Problem
from focus.tasks.arithmetic import Slips, Split, split_of
from focus.tasks.registry import Task

__all__ = ("MODULAR", "MODULUS", "demonstration", "make_problem")

MODULUS = 12

_MULTIPLYING = 0.3
_FACTORS = (2, 3, 4, 5, 6, 7)
_PROMPT = re.compile(r"Compute modulo 12: (\d+)((?: [-+*] \d+)+)\.")
_STEP = re.compile(r"([-+*]) (\d+)")

Chain = tuple[int, list[tuple[str, int]]]
"""First value, then operator and operand of each step."""


def make_problem(index: int, *, seed: int, steps: int, split: Split) -> Problem:
    """Problem number `index` of an endless, seeded sequence; three steps in ten multiply.

    >>> make_problem(0, seed=0, steps=3, split="train").prompt
    'Compute modulo 12: 9 + 2 + 4 * 7.'
    """
    rng = random.Random(f"bench/modular/{seed}/{split}/{steps}/{index}")
    while True:
        chain = rng.randrange(MODULUS), [_drawn(rng) for _ in range(steps)]
        spelled = " ".join([str(chain[0]), *(f"{sign} {term}" for sign, term in chain[1])])
        prompt = f"Compute modulo 12: {spelled}."
        if split_of(prompt) == split:
            value = chain[0]
            for sign, term in chain[1]:
                value = _applied(value, sign, term)
            return Problem(id=f"{split}-{seed}-{index}", prompt=prompt, label=str(value))


def demonstration(problem: Problem, *, slips: Slips, rng: random.Random) -> str:
    """A worked solution that guesses some lines ("~" for "=") and carries its errors along.

    Raises:
        ProblemError: the prompt is none of this family's.
    """
    value, steps = _chain_of(problem)
    lines = []
    for sign, term in steps:
        before, value, mark = value, _applied(value, sign, term), "="
        if rng.random() < slips.guess:
            mark = "~"
            if rng.random() < slips.wrong:
                value = (value + rng.randrange(1, MODULUS)) % MODULUS
        lines.append(f"{before} {sign} {term} {mark} {value}")
    return "\n".join([*lines, rf"\boxed{{{value}}}"])


def _drawn(rng: random.Random) -> tuple[str, int]:
    if rng.random() < _MULTIPLYING:
        return "*", rng.choice(_FACTORS)
    return rng.choice("+-"), rng.randint(2, 9)


def _applied(value: int, sign: str, term: int) -> int:
    if sign == "*":
        return value * term % MODULUS
    return (value + (term if sign == "+" else -term)) % MODULUS


def _chain_of(problem: Problem) -> Chain:
    found = _PROMPT.fullmatch(problem.messages[-1].content)
    if found is None:
        raise ProblemError(f"problem {problem.id!r} is no modular chain")
    steps = [(sign, int(term)) for sign, term in _STEP.findall(found.group(2))]
    return int(found.group(1)), steps


def _task(steps: int) -> Task:
    def draw(split: Split, count: int, seed: int) -> tuple[Problem, ...]:
        return tuple(make_problem(i, seed=seed, steps=steps, split=split) for i in range(count))

    return boxed_task(
        f"mod-{steps}",
        segment_tokens=SEGMENT_TOKENS[steps],
        most_tokens=TOKENS_PER_LINE * steps + 24,
        draw=draw,
    )


def _demonstrate(steps: int, problem: Problem, rng: random.Random) -> str:
    # More errors than in plain chains, as many of them are undone.
    slips = Slips(guess=0.25, wrong=min(0.6, 8 / steps))
    return demonstration(problem, slips=slips, rng=rng)


MODULAR = {
    f"mod-{steps}": Family(
        make_task=partial(_task, steps),
        messages=boxed_messages,
        demonstrate=partial(_demonstrate, steps),
    )
    for steps in (10, 20, 40)
}
