"""What several families need: Slime's modules, and one grader for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from tests.slime.host.modules import slime_modules

from focus.tasks import Grader


@pytest.fixture
def slime() -> Iterator[None]:
    """The strict host's modules, as a process of Slime holds them."""
    with slime_modules():
        yield


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    """Two grading processes with a short deadline, started once for all tests."""
    made = Grader(workers=2, deadline_s=0.6)
    yield made
    anyio.run(made.aclose)
