"""Tasks of a tree: they end with their owner, whatever ends it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from focus._cancellation import Crew
from focus.testing.stepping import CANCELS, Cancel, Stepper

Ending = Callable[[Crew], Coroutine[Any, Any, None]]


async def by_leaving(crew: Crew) -> None:
    await asyncio.sleep(0)


async def by_its_own_error(crew: Crew) -> None:
    raise KeyError("owner")


async def by_a_task(crew: Crew) -> None:
    async def stop() -> None:
        crew.cancel()

    crew.start(stop())
    await crew.news()
    assert crew.is_cancelled


async def by_an_error_of_a_task(crew: Crew) -> None:
    async def fail() -> None:
        raise ValueError("task")

    crew.start(fail())
    await crew.news()


async def by_a_scope_around_it(crew: Crew) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await crew.news()


ENDINGS = {
    by_leaving: None,
    by_its_own_error: KeyError,
    by_a_task: None,
    by_an_error_of_a_task: ValueError,
    by_a_scope_around_it: None,
}


@pytest.mark.parametrize(("ending", "error"), ENDINGS.items())
def test_nothing_outlives_the_owner(ending: Ending, error: type[Exception] | None) -> None:
    cleaned = 0

    async def work() -> None:
        nonlocal cleaned
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned += 1

    async def main() -> None:
        async with Crew() as crew:
            for _ in range(3):
                crew.start(work())
            await asyncio.sleep(0)
            await ending(crew)
        assert len(asyncio.all_tasks()) == 1

    if error is None:
        asyncio.run(main())
    else:
        with pytest.raises(error):
            asyncio.run(main())
    assert cleaned == 3


@pytest.mark.parametrize("cancel", CANCELS.values(), ids=CANCELS)
@pytest.mark.parametrize("moment", range(1, 8))
def test_clean_up_takes_its_turns_however_often_the_owner_is_cancelled(
    moment: int, cancel: Cancel
) -> None:
    begun = cleaned = 0

    async def work() -> None:
        nonlocal begun, cleaned
        begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            cleaned += 1

    async def main() -> None:
        async with Crew() as crew:
            for _ in range(2):
                crew.start(work())
            await crew.news()

    stepper = Stepper(main)
    assert stepper.run_cancelled(moment, cancel) is None
    assert not stepper.leftovers()
    stepper.close()
    assert cleaned == begun


def test_what_is_started_too_late_never_runs() -> None:
    ran = False

    async def work() -> None:
        nonlocal ran
        ran = True

    async def main() -> None:
        async with Crew() as crew:
            crew.cancel()
            crew.start(work())

    asyncio.run(main())
    assert not ran
