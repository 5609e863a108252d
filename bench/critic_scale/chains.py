"""Chains of one-digit sums, the scripted policy that writes them, and what each is worth.

The policy slips now and then, more often where a sum passes 9, and marks a sum that it doubts:
most of its slips, and a few of its right sums. A chain succeeds iff every sum is right, so the
value of a checkpoint is known exactly: 0 once a written sum is wrong, else the product of the
chances of the steps to come.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from focus.problem import Problem
from focus.records.records import CriticContext

__all__ = ("LETTERS", "SLIPS", "Chain", "context", "path", "slip")

LETTERS = "0123456789+=;?"
"""A letter's id is its place from 1; 0 pads."""

SLIP, SLIP_ON_CARRY = 0.02, 0.2
SLIPS = (1, 2, 8, 9)
"""What a slip adds to a sum, modulo 10; one is as likely as another."""

DOUBT_OF_SLIP, DOUBT_OF_SUM = 0.8, 0.02
"""Chance that a wrong sum, and a right one, ends with ``?`` in place of ``;``."""

_MIX = 3**18

TOKENIZER = "critic_scale/letters"


@dataclass(frozen=True)
class Chain:
    """One problem, and how far its sum has been written.

    Attributes:
        terms: digits to add, modulo 10.
        written: partial sums so far, right or not.
        marks: what each of them ends with.
    """

    terms: tuple[int, ...]
    written: tuple[int, ...] = ()
    marks: str = ""

    @property
    def steps_left(self) -> int:
        return len(self.terms) - 1 - len(self.written)

    @property
    def text(self) -> str:
        """The sum, then a step ``before+term=after;`` per written sum.

        >>> Chain((4, 7, 2), (2,), "?").text
        '4+7+2=4+7=2?'
        """
        parts = ["+".join(map(str, self.terms)), "="]
        before = self.terms[0]
        for term, total, mark in zip(self.terms[1:], self.written, self.marks, strict=False):
            parts.append(f"{before}+{term}={total}{mark}")
            before = total
        return "".join(parts)

    def is_right(self) -> bool:
        total = self.terms[0]
        for term, written in zip(self.terms[1:], self.written, strict=False):
            total = (total + term) % 10
            if written != total:
                return False
        return True

    def value(self) -> float:
        """Chance that the scripted policy ends right from here."""
        if not self.is_right():
            return 0.0
        chance, total = 1.0, self.written[-1] if self.written else self.terms[0]
        for term in self.terms[1 + len(self.written) :]:
            chance *= 1.0 - slip(total, term)
            total = (total + term) % 10
        return chance

    def stepped(self, rng: random.Random) -> Chain:
        """One more sum, by the scripted policy."""
        before = self.written[-1] if self.written else self.terms[0]
        term = self.terms[1 + len(self.written)]
        slipped = rng.random() < slip(before, term)
        total = (before + term + (rng.choice(SLIPS) if slipped else 0)) % 10
        mark = "?" if rng.random() < (DOUBT_OF_SLIP if slipped else DOUBT_OF_SUM) else ";"
        return Chain(self.terms, (*self.written, total), self.marks + mark)

    def outcome(self, rng: random.Random) -> float:
        """1.0 if a rollout from here ends right."""
        chain = self
        while chain.steps_left:
            chain = chain.stepped(rng)
        return float(chain.is_right())


def slip(before: int, term: int) -> float:
    """Chance of a wrong sum: higher where it passes 9."""
    return SLIP_ON_CARRY if before + term >= 10 else SLIP


def path(number: int, *, terms: int) -> tuple[Problem, list[Chain]]:
    """A problem and the checkpoints of one rollout, the root first.

    Raises:
        ValueError: there are no more than 10^terms problems.

    >>> path(1, terms=5)[0].prompt
    '2+0+4+8+9='
    """
    if number >= 10**terms:
        raise ValueError(f"{number}: {terms} digits make {10**terms} problems only")
    # Multiplied by a number without factors of 10, they are all different and well mixed.
    digits = f"{number * _MIX % 10**terms:0{terms}d}"
    rng = random.Random(f"path/{number}")
    chain = Chain(tuple(map(int, digits)))
    problem = Problem(id=number, prompt=chain.text, label="")
    chains = [chain]
    while chains[-1].steps_left > 1:
        chains.append(chains[-1].stepped(rng))
    return problem, chains


def context(chain: Chain) -> CriticContext:
    """What the critic reads of a chain."""
    ids = tuple(LETTERS.index(letter) + 1 for letter in chain.text)
    return CriticContext(
        renderer="token_chunk/1", text=chain.text, ids=ids, tokenizer_hash=TOKENIZER
    )
