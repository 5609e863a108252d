"""The whole loop in processes of its own: unattended, and with deaths on the way."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.closed_loop.drill import audit, drill

from focus.critic.store import SnapshotStore
from focus.loop.processes import find_marked
from focus.loop.supervisor import NAMES

ROOT = Path(__file__).parents[2]
FIGURES = (
    "critic_versions",
    "brier_last",
    "brier_constant",
    "mixed_ratio",
    "mixed_ratio_constant",
)


# A parent that ignores Ctrl-C, as shells let background jobs do, passes that on.
FOCUS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from focus.cli.main import app
app()
"""
BENCH = (sys.executable, "-c", FOCUS, "bench", "closed-loop", "--quick")


def bench(folder: Path, *options: str) -> dict[str, Any]:
    """`focus bench closed-loop --quick`, from anywhere; what it wrote."""
    report = folder / "closed-loop.json"
    command = [*BENCH, *options, "--json", str(report), "--out", str(folder / "runs")]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def check(found: dict[str, Any], *, seeds: int) -> None:
    """What holds for every seed of a quick run."""
    assert (found["rounds"], found["seeds"]) == (3, seeds)
    assert found["rounds_by_seed"] == [3] * seeds
    for name in FIGURES:
        assert len(found[f"{name}_by_seed"]) == seeds
    assert min(found["critic_versions_by_seed"]) >= 3
    briers = zip(found["brier_last_by_seed"], found["brier_constant_by_seed"], strict=True)
    assert all(last < constant for last, constant in briers)
    assert found["tokens_per_problem"] == pytest.approx(
        found["tokens_per_problem_constant"], rel=0.02
    )
    assert min(found["steered_rounds_by_seed"]) >= 1
    assert SnapshotStore(found["store"]).verify() == ()


@pytest.mark.timeout(900)
def test_three_rounds_unattended_give_a_critic_that_steers(tmp_path: Path) -> None:
    found = bench(tmp_path, "--seeds", "1")
    check(found, seeds=1)
    assert 0 < found["mixed_ratio_constant"] < 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_bench_ends_all_it_started(tmp_path: Path, number: int) -> None:
    with subprocess.Popen([*BENCH, "--out", tmp_path], stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stderr is not None
        assert any("actor started" in line for line in bench.stderr)
        bench.send_signal(number)
        bench.communicate(timeout=120)
    assert bench.returncode == 128 + number
    marks = (f"{os.path.realpath(tmp_path / 'seed-0')}#{name}" for name in NAMES)
    assert not any(map(find_marked, marks))


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_critic_selects_better_than_a_constant_at_equal_tokens(tmp_path: Path) -> None:
    found = bench(tmp_path)
    check(found, seeds=3)
    assert found["mixed_ratio"] > found["mixed_ratio_constant"]


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop that ran to its end with five deaths on the way."""
    folder = tmp_path_factory.mktemp("drill") / "loop"
    folder.mkdir()
    killed = drill(folder, kills=5, rounds=5, seed=1)
    assert killed.total() == 5
    return folder


@pytest.mark.timeout(900)
@pytest.mark.xdist_group("drill")
def test_five_deaths_lose_nothing_and_repeat_nothing(drilled: Path) -> None:
    found = audit(drilled)
    assert found.wrong == ()
    assert (found.rounds, found.prompts) == (5, 5 * 6)
    assert found.versions >= 1


def edit_record(folder: Path) -> None:
    """One record of a tree names another critic."""
    path = next((folder / "targets").glob("round-000001.attempt-*.jsonl"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["critic_version"] = "critic-9999"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit_ledger(folder: Path, statement: str) -> None:
    ledger = folder / "critics" / "training" / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(ledger)) as db, db:
        assert db.execute(statement).rowcount


TAMPERED = {
    "two critics": (edit_record, "a tree with critics"),
    "lost": (
        lambda folder: edit_ledger(folder, "delete from prompts where rowid = 1"),
        "new in 0 sessions",
    ),
    "trained twice": (
        lambda folder: edit_ledger(
            folder, "insert into prompts select 99, run, name, 1 from prompts where rowid = 1"
        ),
        "new in 2 sessions",
    ),
    "half a pass": (
        lambda folder: edit_ledger(
            folder,
            "delete from applied where session = 1 and pass = "
            "(select max(pass) from applied where session = 1) and record = "
            "(select max(record) from applied where session = 1)",
        ),
        "other records than in its first pass",
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.xdist_group("drill")
@pytest.mark.parametrize("kind", TAMPERED)
def test_the_audit_finds_what_it_looks_for(drilled: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "loop"
    shutil.copytree(drilled, folder)
    tamper, words = TAMPERED[kind]
    tamper(folder)
    assert any(words in wrong for wrong in audit(folder).wrong)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_fifty_deaths_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    assert drill(tmp_path, kills=50, rounds=40).total() == 50
    assert audit(tmp_path).wrong == ()
