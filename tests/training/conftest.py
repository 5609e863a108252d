"""Shared by the training tests."""

import pytest


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full"))
