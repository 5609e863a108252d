"""A remembered verdict is the verdict."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from focus.tasks.grading import Grader
from focus.tasks.memory import Memory


@given(st.lists(st.tuples(st.integers(0, 5), st.integers()), max_size=40), st.integers(1, 4))
def test_it_holds_the_last_used_values_and_no_more(puts: list[tuple[int, int]], most: int) -> None:
    memory: Memory[int, int] = Memory(most=most)
    latest: dict[int, int] = {}
    for key, value in puts:
        memory.put(key, value)
        latest.pop(key, None)
        latest[key] = value
    kept = list(latest)[-most:]
    assert {key: memory.get(key) for key in range(6)} == {
        key: latest[key] if key in kept else None for key in range(6)
    }


def test_equal_answers_are_compared_once_and_counted_each_time() -> None:
    async def grade_twice() -> tuple[list[float], int, int]:
        async with Grader() as grader:
            first = [await grader.grade(rf"\boxed{{{n}}}", "4") for n in (4, 5)]
            asked = grader.pids
            again = [await grader.grade(rf"so \boxed{{{n}}}.", "4") for n in (4, 5)]
            other = [await grader.grade(rf"\boxed{{{n}}}", "5") for n in (4, 5)]
            assert grader.pids == asked
            return [*first, *again, *other], grader.counts.graded, grader.counts.right

    assert asyncio.run(grade_twice()) == ([1.0, 0.0, 1.0, 0.0, 0.0, 1.0], 6, 3)
