"""Open requests, aborts, and the moment in which none is open."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from focus.serving.book import RequestBook

pytestmark = pytest.mark.anyio


async def test_an_abort_ends_whose_name_starts_so_and_no_other() -> None:
    book, ended, opened = RequestBook(), [], anyio.Event()

    async def hold(rid: str) -> None:
        async with book.admitted(rid):
            if len(book) == 3:
                opened.set()
            await anyio.sleep_forever()
        ended.append(rid)

    async with anyio.create_task_group() as group:
        for rid in ("a/1", "a/2", "b"):
            group.start_soon(hold, rid)
        await opened.wait()
        assert book.abort("c") == 0
        assert book.abort("a/") == 2
        while len(ended) < 2:
            await checkpoint()
        assert (sorted(ended), len(book)) == (["a/1", "a/2"], 1)
        assert book.abort("") == 1
    assert len(book) == 0


async def test_a_change_waits_for_what_is_open_and_holds_back_what_comes() -> None:
    book, log = RequestBook(), []
    first_may_end, change_may_end = anyio.Event(), anyio.Event()

    async def request(name: str, may_end: anyio.Event | None = None) -> None:
        async with book.admitted(name):
            log.append(f"{name} in")
            if may_end is not None:
                await may_end.wait()
            log.append(f"{name} out")

    async def change() -> None:
        async with book.alone():
            log.append("change in")
            await change_may_end.wait()
            log.append("change out")

    async def settle() -> None:
        for _ in range(20):
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(request, "first", first_may_end)
        await settle()
        group.start_soon(change)
        await settle()
        group.start_soon(request, "second")
        await settle()
        assert log == ["first in"]
        first_may_end.set()
        await settle()
        assert log == ["first in", "first out", "change in"]
        change_may_end.set()
    assert log[3:] == ["change out", "second in", "second out"]


async def test_a_change_that_is_given_up_lets_requests_in() -> None:
    book = RequestBook()
    async with book.admitted("open"):
        with anyio.move_on_after(0):
            async with book.alone():
                pytest.fail("a request is open")
        async with book.admitted("next"):
            assert len(book) == 2


async def test_a_cancelled_request_is_closed_and_its_cancellation_goes_on() -> None:
    book = RequestBook()
    with anyio.CancelScope() as scope:
        async with book.admitted("r"):
            scope.cancel()
            await checkpoint()
            pytest.fail("not cancelled")
    assert scope.cancelled_caught
    assert len(book) == 0
