"""Two processes train the critic that one would have trained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from .samples import small_model, write_fresh, write_round


def train(root: Path, store: str, *launcher: str) -> dict[str, torch.Tensor]:
    command = [sys.executable, "-m", *launcher, "focus", "critic", "train", str(root / "records")]
    command += ["--out", str(root / store), "--outcomes", str(root / "fresh"), "--device", "cpu"]
    command += ["--model", str(root / "model"), "--set", "passes=2", "--set", "checkpoint_steps=1"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, "--set", "batch_contexts=32"], check=True, env=environment, capture_output=True
    )
    return load_file(root / store / "snapshots/critic-0001/model/model.safetensors")


@pytest.mark.full
def test_two_processes_train_the_same_critic(tmp_path: Path) -> None:
    small_model(tmp_path / "model")
    write_round(tmp_path / "records", range(40))
    write_fresh(tmp_path / "fresh", range(1000, 1100))
    alone = train(tmp_path, "one")
    launcher = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m")
    together = train(tmp_path, "two", *launcher)
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name], tensor, rtol=0, atol=1e-6)
