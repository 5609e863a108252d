"""Graders for the tests that only grade."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from focus.tasks import Grader


@pytest.fixture(scope="module")
def warm() -> Iterator[Grader]:
    """Two workers for a module's plain grades; usable from any loop."""
    grader = Grader(workers=2)
    yield grader
    anyio.run(grader.aclose)


@pytest.fixture
async def short() -> AsyncIterator[Grader]:
    """One worker with a short deadline."""
    async with Grader(deadline_s=1.0) as grader:
        await grader.check("1")
        yield grader
