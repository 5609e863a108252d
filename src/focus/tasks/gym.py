"""Problems and environment of the reasoning-gym generators."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from focus.errors import ConfigError, ProblemError
from focus.problem import Problem
from focus.sampling import derive_seed
from focus.tasks.answer_env import AnswerEnv
from focus.tasks.arithmetic import Split, split_of
from focus.tasks.grading import Grader
from focus.tasks.gym_catalogue import open_dataset

__all__ = ("SYSTEM_PROMPT", "GymEnv", "gym_problems")

SYSTEM_PROMPT = (
    "Solve the problem step by step. "
    "Give your final answer, and nothing else, between <answer> and </answer>."
)

_PATIENCE = 40
"""Items drawn per problem asked for, before the generator counts as too small."""


class GymEnv(AnswerEnv):
    """Solve one generated problem; the last ``<answer>`` pair is graded by its generator.

    The outcome is the generator's own score in [0, 1]; some give part of it for an answer
    that is close, or merely well formed.

    Args:
        reference: label of a problem made by :func:`gym_problems`.
        system_prompt: first message of every prompt without one of its own.
        grader: borrowed; None is the process's shared one.
    """

    def __init__(
        self,
        reference: Mapping[str, Any],
        *,
        system_prompt: str = SYSTEM_PROMPT,
        grader: Grader | None = None,
    ) -> None:
        super().__init__(
            reference, kind="reasoning_gym", system_prompt=system_prompt, grader=grader
        )


def gym_problems(
    name: str,
    *,
    count: int,
    split: Split = "train",
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
) -> tuple[Problem, ...]:
    """The first `count` distinct problems of a generator's split.

    A question's hash decides its split, so no seed puts one into two. The label is
    ``{"dataset", "config", "entry"}``: all that scoring needs, as plain JSON.

    Args:
        name: a name in :data:`focus.tasks.gym_catalogue.SAFE`.
        count: how many, >= 1.
        split: "train", "heldout" or "gate".
        seed: which sequence.
        config: the generator's own settings, e.g. ``{"max_terms": 3}``.

    Raises:
        ConfigError: the generator is unknown or refused, or rejects its settings.
        MissingExtra: reasoning-gym is not installed.
        ProblemError: the generator has too few distinct problems.
    """
    if count < 1 or split not in ("train", "heldout", "gate"):
        raise ConfigError(f"no problems with count={count}, split={split!r}")
    found: dict[str, Problem] = {}
    for problem in _sequence(name, dict(config or {}), seed, most=_PATIENCE * (count + 10)):
        question = problem.messages[0].content
        if split_of(question) == split:
            found.setdefault(question, problem)
        if len(found) == count:
            return tuple(found.values())
    raise ProblemError(
        f"generator {name!r} gave {len(found)} distinct problems for split {split!r}, "
        f"{count} were asked for; lower count or widen its config"
    )


def _sequence(name: str, config: dict[str, Any], seed: int, *, most: int) -> Iterator[Problem]:
    items = open_dataset(name, config, size=most, seed=derive_seed(seed, "gym", name))
    for index in range(most):
        try:
            entry = json.loads(json.dumps(items[index], allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ProblemError(f"{name} item {index} is no plain JSON: {error}") from error
        # Its place in the sequence would make equal problems differ.
        entry.get("metadata", {}).pop("source_index", None)
        yield Problem(
            id=f"{name}-{seed}-{index}",
            prompt=entry["question"],
            label={"dataset": name, "config": config, "entry": entry},
        )
