"""The built-in task: seeded, disjoint splits, demonstrations that err on purpose."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError, ProblemError
from focus.problem import Problem
from focus.tasks.arithmetic import (
    STEPS,
    SYSTEM_PROMPT,
    Slips,
    Split,
    demonstration,
    make_problem,
    make_problems,
    prompt_messages,
    split_of,
)

SPLITS: list[Split] = ["train", "heldout", "gate"]
problems = st.builds(
    make_problem,
    st.integers(0, 10_000),
    seed=st.integers(0, 5),
    steps=st.none() | st.integers(1, 8),
    split=st.sampled_from(SPLITS),
)


@given(problems)
def test_the_label_is_the_value_of_the_prompt(problem: Problem) -> None:
    expression = re.fullmatch(r"Compute ([-+ \d]+)\.", str(problem.prompt))
    assert expression is not None
    terms = re.findall(r"[-+]? ?\d+", expression[1])
    assert sum(int(term.replace(" ", "")) for term in terms) == int(problem.label)


@given(problems)
def test_a_demonstration_without_slips_is_right_line_by_line(problem: Problem) -> None:
    *lines, last = demonstration(problem).split("\n")
    assert last == rf"\boxed{{{problem.label}}}"
    for line in lines:
        a, sign, b, result = re.fullmatch(r"(\d+) ([-+]) (\d+) = (\d+)", line).groups()  # type: ignore[union-attr]
        assert int(a) + (1 if sign == "+" else -1) * int(b) == int(result)


@given(problem=problems, seed=st.integers(0, 1000))
def test_guesses_are_carried_along(problem: Problem, seed: int) -> None:
    """Each line starts with the last one's result, and the box repeats the last result."""
    slips = Slips(guess=0.5, wrong=0.5)
    *lines, last = demonstration(problem, slips=slips, rng=random.Random(seed)).split("\n")
    results = [re.split(" [=~] ", line)[1] for line in lines]
    assert [line.split(" ")[0] for line in lines[1:]] == results[:-1]
    assert last == rf"\boxed{{{results[-1]}}}"


@given(problem=problems, seed=st.integers(0, 1000))
def test_only_guessed_lines_are_wrong(problem: Problem, seed: int) -> None:
    slips = Slips(guess=0.5, wrong=1.0)
    *lines, _ = demonstration(problem, slips=slips, rng=random.Random(seed)).split("\n")
    for line in lines:
        a, sign, b, mark, result = line.split(" ")
        right = int(a) + (1 if sign == "+" else -1) * int(b)
        assert (int(result) == right) == (mark == "=")


def test_a_wrong_sign_and_a_wrong_copy_are_seen_in_the_line() -> None:
    problem, rng = Problem(id=0, prompt="Compute 37 + 5."), random.Random(0)
    assert demonstration(problem, slips=Slips(sign=1.0), rng=rng).startswith("37 - 5 = 32")
    start = int(demonstration(problem, slips=Slips(copy=1.0), rng=rng).split(" ")[0])
    assert abs(start - 37) in (1, 10)


@given(index=st.integers(0, 10_000), split=st.sampled_from(SPLITS))
def test_splits_are_disjoint_and_seeded(index: int, split: Split) -> None:
    problem = make_problem(index, split=split)
    assert split_of(str(problem.prompt)) == split
    assert problem == make_problem(index, split=split)


def test_sequences_differ_by_seed_and_hold_every_length() -> None:
    some = make_problems(200)
    assert len({p.prompt for p in some}) == 200
    assert not {p.prompt for p in some} & {p.prompt for p in make_problems(200, seed=1)}
    assert {str(p.prompt).count(" + ") + str(p.prompt).count(" - ") for p in some} == set(STEPS)


def test_the_prompt_starts_with_the_instruction() -> None:
    system, user = prompt_messages(make_problem(0))
    assert (system.role, system.content) == ("system", SYSTEM_PROMPT)
    assert (user.role, user.content) == ("user", make_problem(0).prompt)


def test_misuse_is_named() -> None:
    with pytest.raises(ConfigError):
        make_problem(0, steps=0)
    with pytest.raises(ConfigError):
        make_problem(0, split="test")  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Slips(guess=1.5)
    with pytest.raises(ConfigError, match="rng"):
        demonstration(make_problem(0), slips=Slips())
    with pytest.raises(ProblemError, match="no arithmetic chain"):
        demonstration(Problem(id=1, prompt="What is two plus two?"))
