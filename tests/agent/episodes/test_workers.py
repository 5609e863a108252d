"""Threads for blocking work, things that no cancellation loses, and the book of open states."""

import threading

import anyio
import pytest

from focus.agent.episodes.ledger import OpenStates
from focus.agent.episodes.workers import Threads, made_whole
from focus.errors import ConfigError, EnvError, LifecycleError
from focus.testing.stepping import CANCELS, Stepper


@pytest.mark.parametrize("most", [1, 3])
def test_as_many_run_at_once_as_may(most: int) -> None:
    threads, lock = Threads(most), threading.Lock()
    running, highest = 0, 0
    full = threading.Barrier(most)

    def work() -> None:
        nonlocal running, highest
        with lock:
            running += 1
            highest = max(highest, running)
        full.wait(30)
        with lock:
            running -= 1

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(3 * most):
                group.start_soon(threads.run, work)

    for _ in range(2):  # one event loop after the other
        anyio.run(main)
    assert highest == most


@pytest.mark.parametrize("cancel", CANCELS)
def test_wherever_it_is_cancelled_a_thing_is_received_or_dropped(cancel: str) -> None:
    for moment in range(1, 40):
        made: list[int] = []
        received: list[int] = []
        dropped: list[int] = []

        async def make(made: list[int] = made) -> int:
            for _ in range(4):
                await anyio.lowlevel.checkpoint()
            made.append(len(made))
            await anyio.lowlevel.checkpoint()
            return made[-1]

        async def drop(thing: int, dropped: list[int] = dropped) -> None:
            await anyio.lowlevel.checkpoint()
            dropped.append(thing)

        async def job(received: list[int] = received) -> None:
            received.append(await made_whole(make(), drop=drop))

        stepper = Stepper(job)
        assert stepper.run_cancelled(moment, CANCELS[cancel]) is None
        assert sorted(received + dropped) == made
        assert len(received) + len(dropped) <= 1
        assert stepper.leftovers() == []
        stepper.close()


def test_what_fails_while_it_is_made_is_raised_and_nothing_is_dropped() -> None:
    async def make() -> int:
        raise ValueError("broken")

    async def drop(thing: int) -> None:
        pytest.fail("there is nothing to drop")

    with pytest.raises(ValueError, match="broken"):
        anyio.run(lambda: made_whole(make(), drop=drop))


def test_states_are_known_by_identity_and_bounded() -> None:
    states = OpenStates(most=2)
    one, twin = ["state"], ["state"]
    with states.room():
        states.add(one)
    with pytest.raises(LifecycleError):
        states.check(twin)
    with states.room(), pytest.raises(EnvError, match="2 states are open"), states.room():
        pytest.fail("there was no room")
    states.add(twin)
    with pytest.raises(EnvError, match="most="), states.room():
        pytest.fail("there was no room")
    assert states.drop(one)
    assert not states.drop(one)
    assert states.drop_all() == [twin]
    with pytest.raises(ConfigError):
        OpenStates(most=0)
