"""Tasks by name: ``demo``, ``gym:NAME``, ``file:PATH``."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from focus.agent.env import Env
from focus.collect import Collector
from focus.errors import ConfigError, ProblemError
from focus.policies.base import Policy
from focus.problem import Problem
from focus.records.problems import read_problems
from focus.tasks import arithmetic
from focus.tasks.answers import single_reference
from focus.tasks.arithmetic import Split, split_of
from focus.tasks.gym import GymEnv, gym_problems
from focus.tasks.gym_catalogue import REFUSED, SAFE, ensure_safe
from focus.tasks.math_env import MathEnv

__all__ = ("KNOWN_TASKS", "Task", "load_task")

KNOWN_TASKS = ("demo", "gym:NAME", "file:PATH")

_SHOWN = 3

Draw = Callable[[Split, int, int], tuple[Problem, ...]]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Problems by split, an environment for each, and the sizes that suit them.

    Attributes:
        name: what :func:`load_task` was asked for.
        segment_tokens: most ids per edge.
        allowance_tokens: most sampled ids from root to leaf.
        draw: (split, count, seed) → problems.
        make_env: problem → a fresh environment that grades its reply.
        collector_for: (policy, problem) → a collector whose agent, environment and search
            are used instead of ones made from the sizes; None makes them.
    """

    name: str
    segment_tokens: int
    allowance_tokens: int
    draw: Draw
    make_env: Callable[[Problem], Env]
    collector_for: Callable[[Policy, Problem], Collector] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.segment_tokens <= self.allowance_tokens:
            raise ConfigError(
                f"task {self.name!r}: needs 1 <= segment_tokens <= allowance_tokens, got "
                f"{self.segment_tokens} and {self.allowance_tokens}"
            )

    def problems(self, split: Split, count: int, *, seed: int = 0) -> tuple[Problem, ...]:
        """`count` problems of a split; equal arguments give equal problems.

        Raises:
            ConfigError: `count` or `split` is out of range.
            ProblemError: the task has too few.
        """
        if count < 1 or split not in ("train", "heldout", "gate"):
            raise ConfigError(f"task {self.name!r}: no problems with {count=}, {split=}")
        return self.draw(split, count, seed)

    def env_for(self, problem: Problem) -> Env:
        """An environment for one problem; any number may be in use at a time."""
        return self.make_env(problem)


def load_task(name: str) -> Task:
    """The task of that name.

    ``demo`` needs ``focus-rl[math]``; ``gym:NAME`` (or the generator's bare name) needs
    ``focus-rl[tasks]``; ``file:PATH`` (or a bare ``….jsonl`` path) needs ``focus-rl[math]``.

    Raises:
        ConfigError: no such task; the message lists the known ones.
        ProblemError: the file has rows that can't be used.
        StoreError: the file can't be read.

    >>> load_task("demo").problems("train", 1)[0].prompt.startswith("Compute ")
    True
    """
    if name == "demo":
        return _demo()
    if name.startswith("file:") or name.endswith(".jsonl"):
        return _file(name, Path(name.removeprefix("file:")))
    generator = name.removeprefix("gym:")
    if generator in SAFE or generator in REFUSED or name != generator:
        return _gym(name, generator)
    raise ConfigError(
        f"unknown task {name!r}; known: {', '.join(KNOWN_TASKS)}, with NAME one of "
        f"{', '.join(SAFE)}"
    )


def _demo() -> Task:
    def draw(split: Split, count: int, seed: int) -> tuple[Problem, ...]:
        return tuple(arithmetic.make_problems(count, seed=seed, split=split))

    return Task(
        name="demo",
        segment_tokens=arithmetic.SEGMENT_TOKENS,
        allowance_tokens=8 * arithmetic.SEGMENT_TOKENS,
        draw=draw,
        make_env=lambda problem: MathEnv(problem.label, system_prompt=arithmetic.SYSTEM_PROMPT),
    )


def _gym(name: str, generator: str) -> Task:
    ensure_safe(generator)

    def draw(split: Split, count: int, seed: int) -> tuple[Problem, ...]:
        return gym_problems(generator, count=count, split=split, seed=seed)

    return Task(
        name=name,
        segment_tokens=128,
        allowance_tokens=1024,
        draw=draw,
        make_env=lambda problem: GymEnv(problem.label),
    )


def _file(name: str, path: Path) -> Task:
    return Task(
        name=name,
        segment_tokens=256,
        allowance_tokens=4096,
        draw=partial(_drawn, name, _usable_rows(path)),
        make_env=lambda problem: MathEnv(problem.label),
    )


def _usable_rows(path: Path) -> tuple[Problem, ...]:
    """All rows of a file; one that can't be won is refused before any token is spent."""
    read = read_problems(path)
    faults = [f"line {row.line}: {row.reason}" for row in read.bad_rows]
    for problem in read.problems:
        try:
            single_reference(problem.label)
        except ProblemError as error:
            faults.append(f"id {problem.id!r}: {error}")
    if faults:
        raise ProblemError(
            f"{path}: {len(faults)} rows can't be used; take them out. First: "
            + "; ".join(faults[:_SHOWN])
        )
    return read.problems


def _drawn(
    name: str, rows: tuple[Problem, ...], split: Split, count: int, seed: int
) -> tuple[Problem, ...]:
    """`count` rows of a split; of held-out and gate rows at most what there is."""
    mine = {row.key: row for row in rows if split_of(row.key) == split}
    if not mine or (split == "train" and len(mine) < count):
        raise ProblemError(
            f"task {name!r}: {len(mine)} distinct problems in split {split!r}, "
            f"{count} were asked for"
        )
    keys = sorted(mine)
    random.Random(f"focus/file/{seed}/{split}").shuffle(keys)
    return tuple(mine[key] for key in keys[:count])
