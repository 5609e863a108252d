"""Slime's modules as far as FOCUS looks at them, in `sys.modules` while a test runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import httpx

from . import parallel
from .rollout import GenerateState

__all__ = ("slime_modules",)


@contextmanager
def slime_modules(*, client: httpx.AsyncClient | None = None) -> Iterator[None]:
    """Lend what a Slime process holds: its HTTP client, its abort flag, its CP cuts."""
    lent: dict[str, dict[str, Any]] = {
        "slime": {},
        "slime.utils": {},
        "slime.utils.http_utils": {"_http_client": client, "post": None},
        "slime.rollout": {},
        "slime.rollout.sglang_rollout": {"GenerateState": GenerateState},
        "slime.backends": {},
        "slime.backends.megatron_utils": {},
        "slime.backends.megatron_utils.cp_utils": {
            "slice_log_prob_with_cp": parallel.cut_log_probs,
        },
    }
    assert not lent.keys() & sys.modules.keys(), "the real Slime is loaded"
    for name, attributes in lent.items():
        module = ModuleType(name)
        module.__path__ = []
        vars(module).update(attributes)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in lent:
            del sys.modules[name]
        GenerateState.forget()
