"""V: the rows are kept, and a wrong grader would be found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from focus.promises.base import Row
from focus.promises.grades import wrong_verdicts
from focus.tasks.quality import Pair
from focus.testing.hostile_answers import hostile_answers


@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", ["V1", "V2", pytest.param("V3", marks=pytest.mark.full)])
def test_the_promise_is_kept(row: str, kept: Callable[[str], Row]) -> None:
    kept(row)


def test_a_wrong_verdict_and_a_silent_zero_are_counted() -> None:
    pairs = [
        Pair("integers", "4", r"\boxed{4}", right=True),
        Pair("integers", "4", r"\boxed{5}", right=True),
        Pair("integers", "4", r"\boxed{4}", right=False),
    ]
    assert wrong_verdicts(pairs) == 2


def test_there_are_two_hundred_different_hostile_answers() -> None:
    answers = dict(hostile_answers(200))
    assert len(answers) == len(set(answers.values())) == 200
