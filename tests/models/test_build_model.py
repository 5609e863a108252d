"""The script that makes the shipped model: deterministic parts, and it learns."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
import torch

from focus.models import BUILTIN
from focus.rendering import load_tokenizer, tokenizer_hash

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_model"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("build_model", str(SCRIPT))
    spec = importlib.util.spec_from_loader("build_model", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    loader.exec_module(module)
    return module


def test_the_shipped_tokenizer_is_the_scripts(script: ModuleType) -> None:
    assert tokenizer_hash(script.build_tokenizer()) == tokenizer_hash(load_tokenizer(BUILTIN))


def test_twenty_updates_lower_the_loss(script: ModuleType) -> None:
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(BUILTIN)
    stage = dataclasses.replace(script.CALCULATING, updates=20)
    losses = script.train(script.build_model(tokenizer), tokenizer, stage, batch=8)
    assert sum(losses[-5:]) < sum(losses[:5]) - 1.0
