"""Slime imports the hooks in every process; that must cost next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import focus.integrations.slime as hooks

_HEAVY = [
    *("numpy", "httpx", "asyncio", "anyio", "rich", "typer"),
    *("torch", "transformers", "slime", "megatron", "ray"),
]


@pytest.mark.parametrize(
    "line", ["import focus.integrations.slime", "import focus.integrations, focus"]
)
def test_importing_loads_nothing_heavy(line: str) -> None:
    code = f"import sys; {line}; print([m for m in {_HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_trainer_hooks_load_no_event_loop() -> None:
    code = (
        "import sys\nfrom focus.integrations.slime import advantages, sum_policy_tokens\n"
        f"print([m for m in {_HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(callable(getattr(hooks, name)) for name in hooks.__all__)
    assert set(hooks.__all__) <= set(dir(hooks))
    assert not hasattr(hooks, "make_train")
