"""The real SDK against a service on a socket of this process."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinker
import torch

from focus.models import BUILTIN
from focus.rendering import load_tokenizer
from focus.testing.tinker_service import TinkerService

os.environ["TINKER_TELEMETRY"] = "0"
torch.set_num_threads(1)

SDK_LEAVES_OPEN = (
    "ignore:Exception ignored in.*(socket.socket|_SelectorTransport)"
    ":pytest.PytestUnraisableExceptionWarning"
)
"""The SDK drops the HTTP client that fetched its first settings without closing it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(SDK_LEAVES_OPEN))


def sweep() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def swept_module() -> Iterator[None]:
    """What the SDK left open is found here and not in the next module's tests."""
    yield
    sweep()


@pytest.fixture(scope="module")
def service() -> Iterator[TinkerService]:
    with TinkerService() as running:
        yield running


@pytest.fixture(scope="module")
def client(service: TinkerService) -> Iterator[Any]:
    with tinker.ServiceClient(base_url=service.url, api_key=service.api_key) as made:
        yield made


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return load_tokenizer(BUILTIN)
