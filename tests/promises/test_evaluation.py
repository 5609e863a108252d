"""E: the rows are kept, and a broken run would be found."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from focus.agent.episodes import CopiedEnv
from focus.promises.base import Row, Size, Stand
from focus.promises.branching import broken_laws
from focus.promises.lives import Fuse, disagreements, live, tiny
from focus.promises.resumption import histories
from focus.promises.separation import trained_with
from focus.records import JsonlDirectory
from focus.testing.episodes import Tape
from focus.testing.records import critic_record
from focus.training.ledger import AppliedRound, RunLedger


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", ["E1", "E2", "E3"])
def test_the_promise_is_kept(row: str, kept: Callable[[str], Row]) -> None:
    kept(row)


def test_an_evaluation_that_left_a_record_would_be_found(tmp_path: Path) -> None:
    alone = anyio.run(trained_with, random.Random(0), 0, tmp_path / "alone")
    assert alone.problems == {0, 1}
    again = anyio.run(trained_with, random.Random(1), 2, tmp_path / "again")
    assert (again.samples, again.records) == (alone.samples, alone.records)
    run = json.loads((tmp_path / "again" / "manifest.json").read_bytes())["run"]
    JsonlDirectory(tmp_path / "again").write([critic_record(problem=1_000, run=run)])
    assert len(list((tmp_path / "again").glob("*.jsonl"))) == 3


def test_branches_that_share_something_would_be_found(tmp_path: Path) -> None:
    stand = Stand(size=Size.QUICK, folder=tmp_path)
    kinds = {"shallow": lambda: CopiedEnv(Tape, copy=copy.copy), "sound": lambda: CopiedEnv(Tape)}
    found = broken_laws(kinds, stand, sequences=6)
    assert found.figure == 1
    (shallow,) = found.detail["broken"].items()
    assert shallow[0] == "shallow"
    assert list(shallow[1]) == ["isolation"]


def test_every_history_of_crashes_is_visited_once(tmp_path: Path) -> None:
    seen = [lives for lives, _ in histories(tmp_path, 3)]
    assert sorted(seen) == [(1,), (1, 1), (1, 1, 1), (1, 2), (2,), (2, 1), (3,)]


def test_a_run_whose_stores_disagree_is_found_out(tmp_path: Path) -> None:
    root = tmp_path / "run"
    live(root, Fuse(), settings=tiny(rounds=1))
    assert disagreements(root, rounds=1) == []
    assert disagreements(root, rounds=2) == ["rounds of the ledger"]
    with closing(RunLedger(root / "ledger.sqlite")) as ledger:
        attempt = ledger.issue(1, ["x"])
        ledger.collected(1, attempt)
        ledger.apply(AppliedRound(1, attempt, "nowhere", 2, {}))
    assert disagreements(root, rounds=2) == ["model", "metrics", "marks", "records"]
