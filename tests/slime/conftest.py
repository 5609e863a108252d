"""The fake host's modules, lent while a test runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .host.modules import slime_modules

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _slime() -> Iterator[None]:
    with slime_modules():
        yield
