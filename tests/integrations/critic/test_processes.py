"""Two processes train the critic that one would have trained."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from .samples import small_model, write_fresh, write_round

PLAIN = ("-m", "focus")
SHARDED = (str(Path(__file__).with_name("sharded.py")),)
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def train(
    root: Path, store: str, *launcher: str, version: str = "critic-0001"
) -> dict[str, torch.Tensor]:
    """Weights of the version that a session publishes."""
    command = [sys.executable, *launcher, "critic", "train", str(root / "records")]
    command += ["--out", str(root / store), "--outcomes", str(root / "fresh"), "--device", "cpu"]
    command += ["--model", str(root / "model"), "--set", "passes=2", "--set", "checkpoint_steps=1"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, "--set", "batch_contexts=32"], check=True, env=environment, capture_output=True
    )
    return load_file(root / store / "snapshots" / version / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("processes")
    small_model(root / "model")
    write_round(root / "records", range(40))
    write_fresh(root / "fresh", range(1000, 1100))
    return root


@pytest.fixture(scope="module")
def alone(material: Path) -> dict[str, torch.Tensor]:
    return train(material, "one", *PLAIN)


@pytest.mark.full
@pytest.mark.parametrize("way", [PLAIN, SHARDED], ids=["whole", "sharded"])
def test_two_processes_train_the_same_critic(
    material: Path, alone: dict[str, torch.Tensor], way: tuple[str, ...], tmp_path: Path
) -> None:
    together = train(material, tmp_path.name, *TWO, *way)
    assert together.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.full
def test_a_training_begun_sharded_goes_on_in_one_process(material: Path, tmp_path: Path) -> None:
    """What each process had a part of is whole on disk, the optimizer's moments too."""
    ends = []
    for name, first in (("one", PLAIN), ("two", (*TWO, *SHARDED))):
        root = tmp_path / name
        shutil.copytree(material / "model", root / "model")
        shutil.copytree(material / "fresh", root / "fresh")
        write_round(root / "records", range(40))
        train(root, "store", *first)
        write_round(root / "records", range(40, 80), round=1)
        ends.append(train(root, "store", *PLAIN, version="critic-0002"))
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name], tensor, rtol=0, atol=1e-6)
