"""The large run in small: its values are right, and the same command trains on them."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    path = Path(__file__).parents[3] / "bench" / "critic_scale.py"
    spec = importlib.util.spec_from_file_location("critic_scale", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["critic_scale"] = module
    spec.loader.exec_module(module)
    return module


def test_the_known_value_is_the_mean_outcome(scale: ModuleType) -> None:
    rng = random.Random(0)
    for number in range(3):
        _, chains = scale.path(number)
        for chain in chains[::3]:
            mean = sum(chain.outcome(rng) for _ in range(2000)) / 2000
            assert mean == pytest.approx(chain.value(), abs=0.05)
    wrong = scale.Chain((10, 20, 30), (31,))
    assert (wrong.value(), wrong.text) == (0.0, "10+20+30=10+20=31;")


def test_a_tiny_run_ends_with_figures(scale: ModuleType, tmp_path: Path) -> None:
    words = ["--problems", "24", "--fresh", "100", "--layers", "1", "--hidden", "16"]
    words += ["--passes", "1", "--batch", "64", "--device", "cpu"]
    scale.main([*words, "--json", str(tmp_path / "figures.json")])
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["fresh_outcomes"] == 600
    assert found["records"] + found["held_out_records"] == 144
    assert 0 < found["brier_truth"] < found["brier_constant"]["mean"]
    assert sum(bar["n"] for bar in found["calibration"]) == 600
