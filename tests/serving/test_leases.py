"""A session holds one version for as long as it asks; a swap never reaches it."""

from __future__ import annotations

import threading

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import Critic
from focus.errors import ConfigError, Refused, StoreError, TransientError
from focus.serving.leases import Leases

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Shelf:
    """Loads constants named like versions, and says how often."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.threads: set[int] = set()

    def __call__(self, version: str) -> Critic:
        if version == "critic-0404":
            raise StoreError("no such version")
        self.loaded.append(version)
        self.threads.add(threading.get_ident())
        return Critic(None, version=version, fixed_value=0.5)


def leases(shelf: Shelf, clock: Clock, *, most: int = 2, lease_s: float = 10.0) -> Leases:
    return Leases(shelf, most=most, lease_s=lease_s, clock=clock)


async def test_a_version_is_loaded_once_for_all_sessions_and_off_the_loop() -> None:
    shelf = Shelf()
    held = leases(shelf, Clock())
    found: list[Critic] = []

    async def ask(number: int) -> None:
        found.append(await held.critic(f"s{number}", "critic-0001"))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(ask, number)
    assert shelf.loaded == ["critic-0001"]
    assert len(set(map(id, found))) == 1
    assert threading.get_ident() not in shelf.threads


async def test_a_session_cannot_change_its_version() -> None:
    held = leases(Shelf(), Clock())
    await held.critic("s", "critic-0001")
    with pytest.raises(Refused, match="holds critic-0001, not critic-0002"):
        await held.critic("s", "critic-0002")
    held.close("s")
    assert (await held.critic("s", "critic-0002")).version == "critic-0002"


async def test_what_a_session_holds_is_never_dropped() -> None:
    shelf, clock = Shelf(), Clock()
    held = leases(shelf, clock, most=2)
    await held.critic("old", "critic-0001")
    for number in range(2, 6):
        await held.critic("new", f"critic-{number:04d}")
        held.close("new")
        await held.critic("old", "critic-0001")
    assert shelf.loaded.count("critic-0001") == 1
    await held.critic("other", "critic-0005")
    with pytest.raises(TransientError, match="sessions hold critic-0001, critic-0005"):
        await held.critic("third", "critic-0006")


async def test_a_silent_session_expires_and_an_asking_one_does_not() -> None:
    shelf, clock = Shelf(), Clock()
    held = leases(shelf, clock, most=1, lease_s=10.0)
    await held.critic("s", "critic-0001")
    for _ in range(5):
        clock.now += 9.0
        await held.critic("s", "critic-0001")
    clock.now += 10.0
    assert held.sessions == {}
    await held.critic("t", "critic-0002")
    assert held.loaded == ("critic-0002",)


async def test_a_version_that_cannot_be_read_is_held_by_nobody() -> None:
    held = leases(Shelf(), Clock())
    with pytest.raises(StoreError):
        await held.critic("s", "critic-0404")
    assert held.sessions == {}
    assert (await held.critic("s", "critic-0001")).version == "critic-0001"


moves = st.lists(
    st.tuples(st.sampled_from(["ask", "close", "wait"]), st.integers(0, 3), st.integers(1, 4)),
    max_size=40,
)


@given(moves)
def test_every_answer_is_of_the_version_that_the_session_began_with(
    moves: list[tuple[str, int, int]],
) -> None:
    async def play() -> None:
        clock = Clock()
        held = leases(Shelf(), clock, most=2, lease_s=10.0)
        began: dict[str, str] = {}
        for what, session, number in moves:
            name, version = f"s{session}", f"critic-{number:04d}"
            if what == "wait":
                clock.now += 4.0
            elif what == "close":
                held.close(name)
            else:
                try:
                    answer = await held.critic(name, version)
                except (Refused, TransientError):
                    continue
                assert answer.version == version
            began = {s: began.get(s, v) for s, v in held.sessions.items()}
            assert held.sessions == began
            assert set(began.values()) <= set(held.loaded)
            assert len(held.loaded) <= 2

    anyio.run(play)


@pytest.mark.parametrize("options", [{"most": 0}, {"lease_s": 0.0}, {"lease_s": float("nan")}])
def test_settings_that_hold_nothing_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        leases(Shelf(), Clock(), **options)  # type: ignore[arg-type]
