"""Generators: which are safe, and what their problems are."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from focus.errors import ConfigError, ProblemError
from focus.tasks.arithmetic import split_of
from focus.tasks.gym import gym_problems
from focus.tasks.gym_catalogue import REFUSED, SAFE, open_dataset
from focus.tasks.scoring import GymScorer

JUNK = ("xyzzy", "", "-1", "[]", "{}", "None", "\x00", "9" * 400)


def test_every_generator_is_either_safe_or_refused():
    from reasoning_gym.factory import DATASETS

    assert set(SAFE) | set(REFUSED) == set(DATASETS)
    assert not set(SAFE) & set(REFUSED)
    assert list(SAFE) == sorted(SAFE)


@pytest.mark.parametrize("name", SAFE)
def test_the_own_answer_scores_1_and_junk_does_not(name):
    entry = json.loads(json.dumps(open_dataset(name, {}, size=2, seed=11)[1]))
    entry["metadata"].pop("source_index", None)
    label = {"dataset": name, "config": {}, "entry": entry}
    scorer = GymScorer()
    scorer.check(label)
    scores = [score_of(scorer, junk, label) for junk in JUNK if junk != entry["answer"]]
    assert max(scores) < 1


def score_of(scorer: GymScorer, answer: str, label: object) -> float:
    """A verifier may raise on junk; the worker turns that into an unverifiable zero."""
    try:
        return scorer.score(f"<answer>{answer}</answer>", label).score
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return 0.0


@pytest.mark.parametrize("name", ["countdown", "codeio", "rush_hour", "prime_factorization"])
def test_an_unsafe_generator_is_refused_with_its_reason(name):
    with pytest.raises(ConfigError, match=name) as caught:
        gym_problems(name, count=1)
    assert REFUSED[name] in str(caught.value)


def test_an_unknown_generator_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="chain_sum"):
        gym_problems("chain_sums", count=1)


def test_settings_that_the_generator_rejects_are_refused():
    with pytest.raises(ConfigError, match="chain_sum"):
        gym_problems("chain_sum", count=1, config={"min_terms": 5, "max_terms": 2})
    with pytest.raises(ConfigError, match="chain_sum"):
        gym_problems("chain_sum", count=1, config={"no_such_setting": 1})


@pytest.mark.parametrize("bad", [{"count": 0}, {"count": 1, "split": "test"}])
def test_impossible_requests_are_refused(bad):
    with pytest.raises(ConfigError):
        gym_problems("chain_sum", **bad)


def test_splits_are_disjoint_whatever_the_seed():
    prompts = {
        split: {
            problem.prompt
            for seed in range(3)
            for problem in gym_problems("chain_sum", count=40, split=split, seed=seed)
        }
        for split in ("train", "heldout", "gate")
    }
    assert all(split_of(text) == split for split, found in prompts.items() for text in found)


def test_equal_questions_are_one_problem_whatever_the_seed():
    small = {"min_value": 1, "max_value": 4}
    problems = [
        problem
        for seed in range(4)
        for problem in gym_problems("lcm", count=3, seed=seed, config=small)
    ]
    assert len({p.key for p in problems}) == len({p.prompt for p in problems}) < len(problems)


def test_equal_arguments_give_equal_problems_and_a_prefix():
    few = gym_problems("gcd", count=5, seed=3)
    many = gym_problems("gcd", count=9, seed=3)
    assert few == gym_problems("gcd", count=5, seed=3)
    assert [problem.key for problem in few] == [problem.key for problem in many[:5]]
    assert len({problem.key for problem in many}) == len({problem.id for problem in many}) == 9


def test_a_label_is_plain_json_and_holds_all_that_scoring_needs():
    (problem,) = gym_problems("chain_sum", count=1, config={"max_terms": 2})
    label = json.loads(json.dumps(problem.label))
    assert label == problem.label
    assert problem.prompt == label["entry"]["question"]
    right = f"<answer>{label['entry']['answer']}</answer>"
    assert GymScorer().score(right, label).score == 1.0


def test_a_generator_with_too_few_problems_says_so():
    with pytest.raises(ProblemError, match="distinct problems"):
        gym_problems("count_bits", count=20, config={"min_n": 1, "max_n": 9})


@pytest.mark.parametrize(
    "label",
    [None, "12", {}, {"dataset": "chain_sum"}, {"entry": {}}],
)
def test_a_label_of_another_form_is_refused(label):
    with pytest.raises(ProblemError, match="gym reference"):
        GymScorer().check(label)


def test_an_entry_that_does_not_win_is_refused():
    with pytest.raises(ProblemError, match="does not score 1"):
        GymScorer().check({"dataset": "chain_sum", "config": {}, "entry": {"answer": ""}})


FINGERPRINT = """
import hashlib, json, sys
from focus.tasks.gym_catalogue import open_dataset
for name in sys.argv[1:]:
    data = open_dataset(name, {}, size=2, seed=11)
    text = json.dumps([data[0], data[1]], sort_keys=True)
    print(name, hashlib.sha256(text.encode()).hexdigest())
"""


def fingerprint(names: tuple[str, ...], hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FINGERPRINT, *names],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    ).stdout


@pytest.mark.parametrize(
    "names",
    [
        ("chain_sum", "gcd", "letter_counting", "number_sequence"),
        pytest.param(SAFE, marks=pytest.mark.full),
    ],
    ids=["some", "all"],
)
def test_the_same_seed_gives_the_same_data_in_any_process(names):
    assert fingerprint(names, "1") == fingerprint(names, "2")
