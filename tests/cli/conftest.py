"""The command line in this process, a small trained run, model folders that are at fault."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from focus.cli.main import app
from focus.models import BUILTIN

torch.set_num_threads(1)

Invoke = Callable[..., Any]

TINY = (
    "prompts=2",
    "tokens_per_prompt=96",
    "eval_problems=4",
    "keep_trees=2",
    "gate.checkpoints=8",
    "critic.steps=1",
    "actor.minibatches=1",
)
"""Settings that make a round a matter of a second."""


@pytest.fixture(scope="session")
def invoke() -> Invoke:
    """Runs ``focus ARGUMENTS`` and checks its exit code."""

    def run(*arguments: object, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        assert "\x1b" not in result.output, "control codes where no terminal is"
        return result

    return run


@pytest.fixture(scope="session")
def trained(invoke: Invoke, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one round; tests must not change it."""
    root = tmp_path_factory.mktemp("runs") / "tiny"
    changes = [part for change in TINY for part in ("--set", change)]
    result = invoke("train", "--preset", "smoke", "--out", root, "--rounds", 1, *changes)
    assert f"next: focus show {root}" in result.stdout
    return root


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """Two rows in the two spellings."""
    rows = [
        {"problem": "Compute 2 + 3.", "solution": r"It is \boxed{5}."},
        {"prompt": "Compute 20 + 13.", "label": 33, "id": "b"},
    ]
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def untemplated(tmp_path: Path) -> Path:
    """The built-in model without its chat template."""
    folder = tmp_path / "untemplated"
    shutil.copytree(BUILTIN, folder)
    (folder / "chat_template.jinja").unlink()
    return folder
