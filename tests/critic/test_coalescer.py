"""Concurrent predictions become batches; nobody gets another's value or error."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.critic.batching import Coalescer

pytestmark = pytest.mark.anyio


class Predictor:
    """f(x) = 10 x after a few turns; keeps the batches, fails on chosen items."""

    def __init__(self, *, turns: int = 1, bad: frozenset[int] = frozenset()) -> None:
        self.batches: list[list[int]] = []
        self.turns = turns
        self.bad = bad
        self.running = 0

    async def __call__(self, items: Sequence[int]) -> list[float]:
        self.batches.append(list(items))
        self.running += 1
        assert self.running == 1, "two batches at once"
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            if self.bad & set(items):
                raise OSError(f"bad item in {list(items)}")
            return [10.0 * item for item in items]
        finally:
            self.running -= 1


ITEMS = st.lists(st.integers(0, 6), min_size=1, max_size=5)


@settings(max_examples=100, deadline=None)
@given(
    callers=st.lists(st.tuples(ITEMS, st.integers(0, 5)), min_size=1, max_size=8),
    most=st.integers(1, 8),
    turns=st.integers(0, 4),
)
def test_values_come_back_in_order_and_equal_items_are_predicted_once_per_batch(
    callers: list[tuple[list[int], int]], most: int, turns: int
) -> None:
    predict = Predictor(turns=turns)

    async def main() -> None:
        coalesced: Coalescer[int] = Coalescer(predict, most=most)

        async def call(items: list[int], wait: int) -> list[float]:
            for _ in range(wait):
                await asyncio.sleep(0)
            return await coalesced(items)

        found = await asyncio.gather(*(call(items, wait) for items, wait in callers))
        assert found == [[10.0 * item for item in items] for items, _ in callers]

    asyncio.run(main())
    for batch in predict.batches:
        assert len(batch) == len(set(batch)) <= most


async def test_callers_that_wait_share_the_next_batch() -> None:
    predict = Predictor(turns=3)
    coalesced: Coalescer[int] = Coalescer(predict, most=64)
    await asyncio.gather(coalesced([1]), coalesced([2, 3]), coalesced([3, 1]), coalesced([2]))
    assert predict.batches == [[1], [2, 3, 1]]


async def test_one_caller_with_many_items_is_served_in_parts() -> None:
    predict = Predictor()
    coalesced: Coalescer[int] = Coalescer(predict, most=3)
    assert await coalesced(range(7)) == [10.0 * item for item in range(7)]
    assert predict.batches == [[0, 1, 2], [3, 4, 5], [6]]


@settings(max_examples=60, deadline=None)
@given(
    callers=st.lists(ITEMS, min_size=1, max_size=8),
    most=st.integers(1, 6),
    bad=st.integers(0, 6),
)
def test_an_error_reaches_exactly_the_callers_of_its_batch(
    callers: list[list[int]], most: int, bad: int
) -> None:
    predict = Predictor(bad=frozenset({bad}))

    async def main() -> None:
        coalesced: Coalescer[int] = Coalescer(predict, most=most)
        found = await asyncio.gather(*map(coalesced, callers), return_exceptions=True)
        for items, result in zip(callers, found, strict=True):
            if isinstance(result, BaseException):
                assert isinstance(result, OSError)
            else:
                assert result == [10.0 * item for item in items]
            assert bad not in items or isinstance(result, OSError)

    asyncio.run(main())


async def test_the_callers_of_other_batches_do_not_hear_of_an_error() -> None:
    predict = Predictor(bad=frozenset({1}))
    coalesced: Coalescer[int] = Coalescer(predict, most=64)
    first, second, third = await asyncio.gather(
        coalesced([0]), coalesced([1]), coalesced([2]), return_exceptions=True
    )
    assert first == [0.0]
    assert second is third
    assert isinstance(second, OSError)
    assert await coalesced([2]) == [20.0]


async def test_a_wrong_number_of_values_is_an_error_even_where_parts_add_up() -> None:
    sizes = iter([1, 3])

    async def predict(items: Sequence[int]) -> list[float]:
        return [0.0] * next(sizes)

    coalesced: Coalescer[int] = Coalescer(predict, most=2)
    with pytest.raises(ValueError, match="zip"):
        await coalesced([1, 2, 3, 4])


async def test_a_cancelled_runner_hands_its_batch_to_the_next_caller() -> None:
    predict = Predictor(turns=50)
    coalesced: Coalescer[int] = Coalescer(predict, most=64)
    runner = asyncio.create_task(coalesced([0]))
    await asyncio.sleep(0)
    others = [asyncio.create_task(coalesced([item])) for item in (1, 2)]
    await asyncio.sleep(0)
    runner.cancel()
    assert await asyncio.gather(*others) == [[10.0], [20.0]]
    assert runner.cancelled()


async def test_a_caller_that_went_away_is_not_predicted_for() -> None:
    predict = Predictor(turns=5)
    coalesced: Coalescer[int] = Coalescer(predict, most=64)
    runner = asyncio.create_task(coalesced([0]))
    await asyncio.sleep(0)
    gone, stays = (asyncio.create_task(coalesced([item])) for item in (1, 2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(runner, stays)
    assert predict.batches == [[0], [2]]


@pytest.mark.parametrize("seed", range(30))
def test_cancelling_at_random_leaves_the_others_served_on_three_loops_in_a_row(seed: int) -> None:
    rng = random.Random(seed)
    predict = Predictor(turns=3)
    coalesced: Coalescer[int] = Coalescer(predict, most=4)

    async def main() -> None:
        tasks = [
            asyncio.create_task(coalesced([rng.randrange(9) for _ in range(3)])) for _ in range(12)
        ]
        doomed = rng.sample(tasks, 8)
        for task in doomed:
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            task.cancel()
        async with asyncio.timeout(30):
            await asyncio.wait(tasks)
        assert all(not task.cancelled() for task in tasks if task not in doomed)
        for task in tasks:
            if not task.cancelled():
                assert len(task.result()) == 3

    for _ in range(3):
        asyncio.run(main())
    assert asyncio.run(coalesced([7])) == [70.0]
