"""The real SDK against a service on a socket of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinker
import torch

from focus.integrations.tinker import TinkerHost
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


def host_of(service: TinkerService) -> TinkerHost:
    return TinkerHost(
        base_url=service.url, api_key=service.api_key, tokenizer=load_tokenizer(BUILTIN)
    )


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
