"""A record counts once per pass, and only together with the weights that hold it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from focus.errors import StoreError
from focus.integrations.critic.ledger import Commit, CriticLedger, PromptHome

HOME = PromptHome("r", "round-000000.attempt-000.0.jsonl")
COMMIT = Commit(
    session=1, pass_index=0, step=3, is_whole=False, checkpoint="a", held_out=None, facts={}
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[CriticLedger]:
    with closing(CriticLedger(tmp_path / "ledger.sqlite")) as found:
        yield found


def test_a_record_is_applied_once_per_pass(ledger: CriticLedger) -> None:
    ledger.open_session(parent=None, targets="recorded", new=[HOME])
    ledger.commit(COMMIT, [("x#0", 0), ("x#1", 1)])
    with pytest.raises(StoreError, match="twice"):
        ledger.commit(replace(COMMIT, checkpoint="b"), [("y#0", 2), ("x#1", 3)])
    assert ledger.applied(1, 0) == {"x#0": 0, "x#1": 1}
    assert [commit.checkpoint for commit in ledger.commits(1)] == ["a"]
    ledger.commit(replace(COMMIT, pass_index=1), [("x#0", 0)])
    assert ledger.applied(1, 1) == {"x#0": 0}


def test_sessions_follow_one_another(ledger: CriticLedger) -> None:
    first = ledger.open_session(parent=None, targets="outcomes", new=[HOME])
    assert ledger.open() == first
    with pytest.raises(StoreError, match="open already"):
        ledger.open_session(parent=None, targets="outcomes", new=[])
    ledger.published(1, "critic-0001")
    assert ledger.open() is None
    second = ledger.open_session(
        parent="critic-0001", targets="recorded", new=[PromptHome("r", "b")], replayed=[HOME]
    )
    assert (second.number, second.parent) == (2, "critic-0001")
    assert ledger.prompts(2) == sorted([HOME, PromptHome("r", "b")])
    assert ledger.known_prompts() == {HOME, PromptHome("r", "b")}


def test_it_is_the_same_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(CriticLedger(path)) as ledger:
        name = ledger.trainer
        ledger.open_session(parent=None, targets="recorded", new=[HOME])
        ledger.meet(["k1", "k2"])
        ledger.commit(COMMIT, [("x#0", 0)])
    with closing(CriticLedger(path)) as ledger:
        assert ledger.trainer == name
        assert ledger.met() == {"k1", "k2"}
        assert ledger.commits() == [COMMIT]


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database, but long enough to look at" * 30)
    with pytest.raises(StoreError, match=r"ledger\.sqlite"):
        CriticLedger(path)
