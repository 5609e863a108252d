"""Shared by all tests: `--full`, and no surprises from thread pools."""

import gc
import os

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Machines are shared: a slow example is no failure.
settings.register_profile("focus", deadline=None)
settings.load_profile("focus")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the long tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    for item in items:
        if "full" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="long; run with --full"))


def pytest_collection_finish() -> None:
    """Over a million objects live as long as the process: no collection visits them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
