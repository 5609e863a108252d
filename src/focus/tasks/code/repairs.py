"""Small programs with one planted fault each, and the tests that find it."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from focus.agent import DirectoryWorkspace
from focus.errors import ProblemError
from focus.problem import Problem
from focus.tasks.arithmetic import Split, split_of
from focus.tasks.code.env import CodeEnv
from focus.tasks.code.sandbox import Sandbox
from focus.tasks.code.suite import TestSuite

__all__ = ("repair_env", "repair_files", "repair_problems")

PATH = "tally.py"
_KEPT: Mapping[str, tuple[str, Callable[[int, int], bool]]] = {
    ">": ("above", operator.gt),
    "<": ("below", operator.lt),
    ">=": ("of at least", operator.ge),
    "<=": ("of at most", operator.le),
}
_GATHERED: Mapping[str, tuple[str, Callable[[int, int], int], int]] = {
    "+": ("sum", operator.add, 0),
    "*": ("product", operator.mul, 1),
}


@dataclass(frozen=True, slots=True)
class _Tally:
    """A loop over numbers: which are kept, and how they are gathered."""

    kept: str
    limit: int
    gathered: str
    start: int

    @property
    def source(self) -> str:
        return (
            "def tally(values):\n"
            f"    total = {self.start}\n"
            "    for value in values:\n"
            f"        if value {self.kept} {self.limit}:\n"
            f"            total = total {self.gathered} value\n"
            "    return total\n"
        )

    def of(self, values: list[int]) -> int:
        total = self.start
        for value in values:
            if _KEPT[self.kept][1](value, self.limit):
                total = _GATHERED[self.gathered][1](total, value)
        return total


def repair_problems(count: int, *, seed: int = 0, split: Split = "train") -> list[Problem]:
    """`count` programs to mend; prompts of different splits never agree.

    The metadata hold ``files`` (what the agent starts with) and ``tests``.

    Raises:
        ProblemError: `count` is below 1.

    >>> print(repair_problems(1, seed=1)[0].prompt)
    tally(values) in tally.py shall give the sum of the values of at most 8. It does not.
    """
    if count < 1:
        raise ProblemError(f"no repairs with {count=}")
    found: list[Problem] = []
    rng = random.Random(f"focus/repairs/{seed}/{split}")
    while len(found) < count:
        problem = _drawn(rng, name=f"repair-{seed}-{split}-{len(found)}")
        if split_of(str(problem.prompt)) == split:
            found.append(problem)
    return found


async def repair_files(problem: Problem) -> DirectoryWorkspace:
    """Where the agent starts: the broken program, on disk. Release it at the end."""
    return await DirectoryWorkspace().restore(problem.metadata["files"])


def repair_env(problem: Problem, *, sandbox: Sandbox | None = None) -> CodeEnv:
    """The task of one program: outcome 1 when its tests pass."""
    return CodeEnv(TestSuite(files=problem.metadata["tests"], sandbox=sandbox or Sandbox()))


def _drawn(rng: random.Random, *, name: str) -> Problem:
    kept, gathered = rng.choice(sorted(_KEPT)), rng.choice(sorted(_GATHERED))
    whole = _Tally(kept, rng.randrange(2, 9), gathered, _GATHERED[gathered][2])
    broken = whole
    values: list[list[int]] = [[]]
    while all(broken.of(each) == whole.of(each) for each in values):
        broken = _broken(rng, whole)
        values = [[rng.randrange(1, 10) for _ in range(rng.randrange(1, 5))] for _ in range(3)]
    told = f"{_GATHERED[gathered][0]} of the values {_KEPT[kept][0]} {whole.limit}"
    return Problem(
        id=name,
        prompt=f"tally(values) in {PATH} shall give the {told}. It does not.",
        label=broken.source,
        metadata={
            "files": {PATH: broken.source},
            "tests": {"test_tally.py": _tests(whole, values)},
        },
    )


def _broken(rng: random.Random, whole: _Tally) -> _Tally:
    match rng.randrange(3):
        case 0:
            return _Tally(rng.choice(sorted(_KEPT)), whole.limit, whole.gathered, whole.start)
        case 1:
            return _Tally(whole.kept, whole.limit, rng.choice(sorted(_GATHERED)), whole.start)
        case _:
            return _Tally(whole.kept, whole.limit, whole.gathered, 1 - whole.start)


def _tests(whole: _Tally, values: list[list[int]]) -> str:
    cases = "".join(
        f"    def test_{number}(self):\n        self.assertEqual(tally({each}), {whole.of(each)})\n"
        for number, each in enumerate(values)
    )
    return f"import unittest\nfrom tally import tally\n\nclass Tests(unittest.TestCase):\n{cases}"
