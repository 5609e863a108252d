"""Family (l): killed anywhere and started again, nothing is applied twice, skipped or mixed in."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus.errors import StoreError
from focus.records import (
    CriticContext,
    CriticRecord,
    JsonlDirectory,
    RecordKey,
    read_critic_records,
    read_problems,
)
from focus.testing.policies import ScriptedPolicy
from focus.training.collecting import CollectRun, CollectSettings, Refusal
from focus.training.collection_folder import CollectionFolder
from focus.training.ledger import AppliedRound, RunLedger
from focus.tree import Identity

BATCHES = 2


class Killed(BaseException):
    """The process is gone."""


class Mortal(sqlite3.Connection):
    """Dies before its n-th statement, counted over all connections; a commit counts too."""

    left = 0

    def execute(self, *args: Any) -> Any:
        Mortal.left -= 1
        if Mortal.left == 0:
            raise Killed
        return super().execute(*args)


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    connect = sqlite3.connect

    def arm(statements: int) -> None:
        Mortal.left = statements

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **o: connect(*a, factory=Mortal, **o))
    return arm


def process(path: Path, work: list[int]) -> None:
    """One process of a run: go on where the ledger says, apply what is due."""
    ledger = RunLedger(path)
    try:
        for batch in range(len(ledger.applied()), BATCHES):
            attempt = ledger.issue(batch, [f"p{batch}"])
            ledger.collected(batch, attempt)
            work.append(batch)
            ledger.apply(
                AppliedRound(
                    round=batch,
                    attempt=attempt,
                    checkpoint=f"after-{batch}",
                    optimizer_steps=batch + 1,
                    metrics={},
                )
            )
    finally:
        ledger.close()


def test_b86_a_batch_is_applied_once_wherever_the_process_dies(
    tmp_path: Path, mortal: Callable[[int], None]
) -> None:
    """Killed before every statement of the ledger in turn: acceptance and "next" are one step."""
    for statements in itertools.count(1):
        path, work = tmp_path / f"{statements}.sqlite", list[int]()
        mortal(statements)
        try:
            process(path, work)
            is_over = True
        except Killed:
            is_over = False
        mortal(-1)
        process(path, work)
        ledger = RunLedger(path)
        applied = ledger.applied()
        ledger.close()
        assert [one.round for one in applied] == list(range(BATCHES))
        assert [one.checkpoint for one in applied] == [f"after-{b}" for b in range(BATCHES)]
        assert max(Counter(work).values()) <= 2
        if is_over:
            break
    assert statements > 15


def test_b86_a_batch_that_is_applied_cannot_be_issued_or_applied_again(tmp_path: Path) -> None:
    process(tmp_path / "l.sqlite", [])
    ledger = RunLedger(tmp_path / "l.sqlite")
    for batch in range(BATCHES):
        with pytest.raises(StoreError, match=f"round {BATCHES} is due"):
            ledger.issue(batch, [])
        again = AppliedRound(round=batch, attempt=0, checkpoint="x", optimizer_steps=9, metrics={})
        with pytest.raises(StoreError):
            ledger.apply(again)
    assert ledger.issue(BATCHES, []) == 0
    ledger.close()


def record(round: int, attempt: int) -> CriticRecord:
    return CriticRecord(
        source=RecordKey(
            identity=Identity(run="r", round=round, attempt=attempt),
            problem=round,
            key="k",
            policy_version="v",
            critic_version="c",
        ),
        node=0,
        context=CriticContext(renderer="token_chunk/1", text="t"),
        target=0.5,
        count=1,
        prior=0.5,
        depth=0,
    )


@pytest.mark.parametrize("resumed", range(6))
def test_b88_records_of_a_dead_attempt_are_kept_aside_and_never_mixed_in(
    resumed: int, tmp_path: Path
) -> None:
    """Rounds 0-5 exist; a run that goes on after `resumed` reads those and its own alone."""
    sink = JsonlDirectory(tmp_path)
    for round in range(6):
        sink.write([record(round, 0)])
        sink.accept(round=round, attempt=0)
    sink.roll_back(after=resumed)

    def read(**options: Any) -> list[tuple[int, int]]:
        found = read_critic_records(tmp_path, **options)
        return [(one.source.identity.round, one.source.identity.attempt) for one in found]

    kept = [(round, 0) for round in range(resumed + 1)]
    assert read() == read(rounds=range(resumed + 1)) == kept
    for round in range(resumed + 1, 6):
        sink.write([record(round, 1)])
        assert (round, 1) not in read()
        sink.accept(round=round, attempt=1)
    assert read() == kept + [(round, 1) for round in range(resumed + 1, 6)]
    dead = read(attempts=dict.fromkeys(range(resumed + 1, 6), 0))
    assert dead == [(round, 0) for round in range(resumed + 1, 6)]


class Stopping:
    """Lets `most` rows be stored, then the process ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.scope = anyio.CancelScope()

    def progress(self, done: int, total: int, tokens: int) -> None:
        if done >= self._most:
            self.scope.cancel()

    def refused(self, line: int, refusal: Refusal) -> None:
        raise AssertionError(refusal)


def write(prompt: str, so_far: str, rng: random.Random) -> str:
    """Long solutions for some prompts: a cursor that runs ahead would skip those."""
    number = int(prompt.partition("Compute ")[2].partition(" ")[0])
    return ("step " * (1 + 5 * (number % 3)) + rf"\boxed{{{number + 1}}}")[len(so_far) :]


async def collect_some(folder: Path, rows: Path, most: int) -> ScriptedPolicy:
    """One process: collect what is missing, but at most `most` rows."""
    wanted = CollectSettings(
        problems="rows", model="scripted", tokens=90, segment=8, allowance=96, concurrency=2
    )
    policy, report = ScriptedPolicy(write), Stopping(most)
    run = CollectRun(
        settings=wanted,
        policy=policy,
        folder=CollectionFolder.open(folder, wanted.to_dict(), versions={}),
        report=report,
        capacity=4,
    )
    with report.scope:
        await run.run(read_problems(rows))
    return policy


@pytest.mark.anyio
@pytest.mark.parametrize("accepted", [0, 1, 5, 8])
async def test_b89_every_prompt_that_was_issued_is_accepted_once(
    accepted: int, tmp_path: Path
) -> None:
    """8 issued, some accepted, stopped, resumed: accepted + pending = issued, none twice."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"problem": f"Compute {n} + 1.", "solution": str(n + 1)}) + "\n"
            for n in range(8)
        )
    )
    out = tmp_path / "out"
    await collect_some(out, rows, accepted)
    first = {path.name: path.read_bytes() for path in (out / "rows").iterdir()}
    statuses = Counter(
        json.loads(line)["status"] for line in (out / "index.jsonl").read_text().splitlines()
    )
    # A row that was being stored when the others were stopped is whole, and listed next time.
    assert min(accepted, 1) <= statuses["collected"] <= len(first)
    assert statuses["collected"] + statuses["left"] == 8
    await collect_some(out, rows, 99)
    again = {path.name: path.read_bytes() for path in (out / "rows").iterdir()}
    assert len(again) == 8
    assert all(again[name] == data for name, data in first.items())
    problems = Counter(one.source.problem for one in read_critic_records(out / "critic"))
    nodes = Counter((one.source.problem, one.node) for one in read_critic_records(out / "critic"))
    assert len(problems) == 8
    assert set(nodes.values()) == {1}
    untouched = await collect_some(out, rows, 99)
    assert untouched.requests == 0


@pytest.mark.anyio
async def test_b89_a_row_whose_targets_were_not_stored_is_still_pending(tmp_path: Path) -> None:
    """A row is accepted by the last write of all; a disk that fails before leaves it to do."""
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out"
    rows.write_text(json.dumps({"problem": "Compute 1 + 1.", "solution": "2"}) + "\n")
    await collect_some(out, rows, 0)
    for folder in ("rows", "critic"):
        shutil.rmtree(out / folder, ignore_errors=True)
    (out / "rows").mkdir()
    (out / "critic").write_text("a file where the targets should go")
    with pytest.raises(StoreError):
        await collect_some(out, rows, 99)
    assert list((out / "rows").iterdir()) == []
    (out / "critic").unlink()
    await collect_some(out, rows, 99)
    assert len(list((out / "rows").iterdir())) == 1
    assert list(read_critic_records(out / "critic"))
