"""The large run in small: its values are right, and the same command trains on them."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from bench.critic_scale.actor import Pretraining, blank_model, policy_entropy, pretrain, rollouts
from bench.critic_scale.chains import DOUBT_OF_SLIP, DOUBT_OF_SUM, LETTERS, SLIPS, Chain, path, slip

torch.set_num_threads(1)

ROOT = Path(__file__).parents[3]


def test_the_known_value_is_the_mean_outcome() -> None:
    rng = random.Random(0)
    for number in range(3):
        _, chains = path(number, terms=7)
        for chain in chains[::3]:
            mean = sum(chain.outcome(rng) for _ in range(2000)) / 2000
            assert mean == pytest.approx(chain.value(), abs=0.05)
    wrong = Chain((4, 7, 2), (2,), ";")
    assert (wrong.value(), wrong.text) == (0.0, "4+7+2=4+7=2;")


def parsed(row: torch.Tensor) -> Chain:
    """The chain that a row of ids spells."""
    text = "".join(LETTERS[number - 1] for number in row.tolist())
    sums, steps = text.split("=", 1)
    terms = tuple(int(term) for term in sums.split("+"))
    written = tuple(int(total) for total, _ in re.findall(r"=(\d)([;?])", steps))
    chain = Chain(terms, written, "".join(mark for mark in steps if mark in ";?"))
    assert chain.text == text
    return chain


def test_drawn_rollouts_are_those_of_the_scripted_policy() -> None:
    """Same text, same chance of a slip at every sum, same slips, same doubts."""
    rows = rollouts(4000, terms=4, generator=torch.Generator().manual_seed(4))
    expected, spread, seen = 0.0, 0.0, dict.fromkeys(SLIPS, 0)
    marks = {True: "", False: ""}
    for chain in map(parsed, rows):
        before = chain.terms[0]
        for term, total, mark in zip(chain.terms[1:], chain.written, chain.marks, strict=True):
            chance = slip(before, term)
            marks[total == (before + term) % 10] += mark
            expected, spread = expected + chance, spread + chance * (1 - chance)
            if off := (total - before - term) % 10:
                seen[off] += 1
            before = total
    slips = sum(seen.values())
    assert abs(slips - expected) < 4 * math.sqrt(spread)
    assert all(abs(n - slips / 4) < 4 * math.sqrt(slips * 3 / 16) for n in seen.values())
    for is_right, doubt in ((True, DOUBT_OF_SUM), (False, DOUBT_OF_SLIP)):
        found = marks[is_right].count("?") / len(marks[is_right])
        assert abs(found - doubt) < 4 * math.sqrt(doubt * (1 - doubt) / len(marks[is_right]))


def test_no_model_loses_less_than_the_entropy_of_the_policy() -> None:
    """The entropy is what the policy itself loses on its rollouts, in the mean."""
    rows = rollouts(4000, terms=3, generator=torch.Generator().manual_seed(5))
    losses = []
    for chain in map(parsed, rows):
        before, nats = chain.terms[0], 0.0
        for term, total, mark in zip(chain.terms[1:], chain.written, chain.marks, strict=True):
            chance = slip(before, term)
            is_right = total == (before + term) % 10
            doubt = DOUBT_OF_SUM if is_right else DOUBT_OF_SLIP
            nats -= math.log(1 - chance if is_right else chance / len(SLIPS))
            nats -= math.log(doubt if mark == "?" else 1 - doubt)
            before = total
        losses.append(nats)
    assert sum(losses) / len(losses) == pytest.approx(policy_entropy(3), abs=0.1)


def test_pretraining_learns_the_form_of_a_rollout() -> None:
    said: list[str] = []
    model = blank_model(layers=1, hidden=32)
    plan = Pretraining(steps=40, batch=32, rate=1e-2, terms=2)
    found = pretrain(model, plan, device=torch.device("cpu"), tell=said.append)
    assert len(said) == 20
    assert found["pretrain_rollouts"] == 40 * 32
    blind = 6 * math.log(64)
    assert found["policy_nats"] < found["pretrain_nats"] < 0.7 * blind


def run(folder: Path, *options: str) -> dict[str, Any]:
    """The script, as a user starts it; the figures that it wrote."""
    command = [sys.executable, "-m", "bench.critic_scale", "--device", "cpu", *options]
    command += ["--json", str(folder / "figures.json"), "--out", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found: dict[str, Any] = json.loads((folder / "figures.json").read_text())
    return found


def test_a_tiny_run_ends_with_figures(tmp_path: Path) -> None:
    size = ["--layers", "1", "--hidden", "16", "--terms", "4", "--pretrain-batch", "8"]
    words = ["--problems", "48", "--fresh", "200", "--passes", "1", "--batch", "64"]
    found = run(tmp_path, *size, *words, "--pretrain-steps", "2", "--lr", "1e-3", "1e-4")
    assert found["fresh_outcomes"] == 600
    assert found["records"] + found["held_out_records"] == 144
    assert 0 < found["brier_truth"] < found["brier_constant"]["mean"]
    assert sum(bar["n"] for bar in found["calibration"]) == 600
    assert found["pretrain_rollouts"] == 16
    errors = found["held_out_error_by_rate"]
    assert errors.keys() == {"0.001", "0.0001"}
    assert found["held_out_error"] == min(errors.values())
