"""Arithmetic chains: the built-in task, made of nothing but a seed.

"Compute 37 + 5 - 8." is solved line by line, one operation each, then boxed:

    37 + 5 = 42
    42 - 8 = 34
    \\boxed{34}

A careless solver guesses some lines, "37 + 5 ~ 43", and is often wrong; a wrong line spoils
every line after it. So partial solutions differ in value, which can be seen from the text,
and there is a habit to unlearn. The three splits are disjoint by construction: a prompt's
hash decides which one it belongs to.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from focus.errors import ConfigError, ProblemError
from focus.problem import Message, Problem

__all__ = (
    "SEGMENT_TOKENS",
    "STEPS",
    "SYSTEM_PROMPT",
    "Slips",
    "Split",
    "demonstration",
    "make_problem",
    "make_problems",
    "prompt_messages",
    "split_of",
)

Split = Literal["train", "heldout", "gate"]

SYSTEM_PROMPT = r"Solve the problem step by step. Put your final answer in \boxed{}."
SEGMENT_TOKENS = 12
"""Segment length at which the built-in model's solutions span 4 to 6 segments."""
STEPS = (4, 5, 6)
"""Operations per problem, unless a caller names a number."""

_LARGEST = 99
_TERMS = re.compile(r"([+-]?) ?(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slips:
    """How a careless demonstrator errs, per line.

    Attributes:
        guess: chance to guess the result, written with "~" instead of "=".
        wrong: chance that a guess is off, by one or by ten.
        sign: chance to add where the problem subtracts, or the other way round.
        copy: chance to start from a running value that is off by one or by ten.
    """

    guess: float = 0.0
    wrong: float = 0.0
    sign: float = 0.0
    copy: float = 0.0

    def __post_init__(self) -> None:
        for name in ("guess", "wrong", "sign", "copy"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie in [0, 1], got {getattr(self, name)}")


def split_of(prompt: str) -> Split:
    """The split a prompt belongs to: 80 % train, 10 % heldout, 10 % gate.

    >>> split_of("Compute 37 + 5 - 8.")
    'train'
    """
    bucket = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "big") % 10
    if bucket == 0:
        return "heldout"
    return "gate" if bucket == 1 else "train"


def make_problem(
    index: int, *, seed: int = 0, steps: int | None = None, split: Split = "train"
) -> Problem:
    """Problem number `index` of an endless, seeded sequence.

    Args:
        index: place in the sequence, >= 0.
        seed: which sequence.
        steps: operations, >= 1; None draws one of `STEPS`.
        split: "train", "heldout" or "gate"; a prompt never belongs to two.

    Raises:
        ConfigError: `steps` or `split` is out of range.

    >>> problem = make_problem(3, steps=2)
    >>> problem.prompt, problem.label
    ('Compute 30 - 7 - 3.', '20')
    """
    if split not in ("train", "heldout", "gate") or (steps is not None and steps < 1):
        raise ConfigError(f"no arithmetic problem with steps={steps}, split={split!r}")
    rng = random.Random(f"focus/arithmetic/{seed}/{split}/{steps}/{index}")
    while True:
        terms = _draw_terms(rng, steps or rng.choice(STEPS))
        prompt = "Compute " + _spelled(terms) + "."
        if split_of(prompt) == split:
            return Problem(id=f"{split}-{seed}-{index}", prompt=prompt, label=str(sum(terms)))


def make_problems(
    count: int, *, seed: int = 0, steps: int | None = None, split: Split = "train"
) -> list[Problem]:
    """The first `count` problems of a sequence."""
    return [make_problem(i, seed=seed, steps=steps, split=split) for i in range(count)]


def prompt_messages(problem: Problem) -> tuple[Message, ...]:
    """The conversation a solver sees: this task's instruction, then the problem."""
    return (Message("system", SYSTEM_PROMPT), *problem.messages)


def demonstration(
    problem: Problem, *, slips: Slips | None = None, rng: random.Random | None = None
) -> str:
    """A worked solution; with `slips`, one that errs and carries its errors along.

    Raises:
        ConfigError: `slips` without an `rng`.
        ProblemError: the prompt is none of this task's.

    >>> print(demonstration(Problem(id=0, prompt="Compute 37 + 5 - 8.")))
    37 + 5 = 42
    42 - 8 = 34
    \\boxed{34}
    """
    if slips is not None and rng is None:
        raise ConfigError("slips need an rng to draw from")
    value, *rest = _terms_of(problem)
    lines = []
    for term in rest:
        if slips is None or rng is None:
            start, change, sign, value = value, term, "=", value + term
        else:
            start, change = _slipped(value, term, slips, rng)
            sign, value = _result(start + change, slips, rng)
        lines.append(f"{start} {'+' if change >= 0 else '-'} {abs(change)} {sign} {value}")
    return "\n".join([*lines, rf"\boxed{{{value}}}"])


def _draw_terms(rng: random.Random, steps: int) -> list[int]:
    terms = [rng.randint(10, 99)]
    while len(terms) <= steps:
        term = rng.choice((1, -1)) * rng.randint(2, 9)
        if 0 <= sum(terms) + term <= _LARGEST:
            terms.append(term)
    return terms


def _spelled(terms: Sequence[int]) -> str:
    first, *rest = terms
    return " ".join([str(first), *(f"{'+' if term >= 0 else '-'} {abs(term)}" for term in rest)])


def _terms_of(problem: Problem) -> list[int]:
    prompt = problem.messages[-1].content
    terms = [int(sign + digits) for sign, digits in _TERMS.findall(prompt)]
    if not terms or prompt != f"Compute {_spelled(terms)}.":
        raise ProblemError(f"problem {problem.id!r} is no arithmetic chain: {prompt!r}")
    return terms


def _slipped(value: int, term: int, slips: Slips, rng: random.Random) -> tuple[int, int]:
    """Running value and change that a careless line works with; results stay in range."""
    start = value + rng.choice((-10, -1, 1, 10)) if rng.random() < slips.copy else value
    change = -term if rng.random() < slips.sign else term
    within = 0 <= start <= _LARGEST and 0 <= start + change <= _LARGEST
    return (start, change) if within else (value, term)


def _result(value: int, slips: Slips, rng: random.Random) -> tuple[str, int]:
    """The sign and the number that a line ends with; guesses stay in range."""
    if rng.random() >= slips.guess:
        return "=", value
    near = [value + error for error in (-10, -1, 1, 10) if 0 <= value + error <= _LARGEST]
    return "~", rng.choice(near) if near and rng.random() < slips.wrong else value
