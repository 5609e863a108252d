"""Each round counts exactly once, whenever the process dies: all interleavings, by a model."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from focus.errors import StoreError
from focus.training.ledger import AppliedRound, RunLedger


@dataclass(frozen=True)
class Model:
    """What the ledger should hold, in plain values.

    `attempts` are (round, attempt, state) in order of issue; `applied` the attempt of each
    round that counts.
    """

    attempts: tuple[tuple[int, int, str], ...] = ()
    applied: tuple[int, ...] = ()

    @property
    def due(self) -> int:
        return len(self.applied)

    def issue(self, round_index: int) -> "Model | None":
        if round_index != self.due:
            return None
        gone = tuple((r, a, "abandoned" if r == self.due else s) for r, a, s in self.attempts)
        number = sum(1 for r, _, _ in self.attempts if r == self.due)
        return replace(self, attempts=(*gone, (self.due, number, "issued")))

    def collect(self, round_index: int, attempt: int) -> "Model | None":
        return self._moved(round_index, attempt, "issued", "collected")

    def apply(self, round_index: int, attempt: int) -> "Model | None":
        moved = self._moved(round_index, attempt, "collected", "applied")
        return moved and replace(moved, applied=(*self.applied, attempt))

    def _moved(self, round_index: int, attempt: int, before: str, after: str) -> "Model | None":
        row = (round_index, attempt, before)
        if row not in self.attempts:
            return None
        new = tuple((*r[:2], after) if r == row else r for r in self.attempts)
        return replace(self, attempts=new)


Step = tuple[str, Callable[[RunLedger], object], Model | None]


def entry(round_index: int, attempt: int) -> AppliedRound:
    name = f"round-{round_index}-{attempt}"
    return AppliedRound(round_index, attempt, name, 10 * round_index, {"round": round_index})


def steps_from(model: Model) -> Iterator[Step]:
    """Everything a process, living or dead, may try next."""
    for r in range(max(0, model.due - 1), model.due + 2):
        yield f"issue {r}", lambda ledger, r=r: ledger.issue(r, ["a", "b"]), model.issue(r)
    rows = [(r, a) for r, a, _ in model.attempts]
    for r, a in [*rows, (model.due, len(rows))]:
        yield (
            f"collect {r}/{a}",
            lambda ledger, r=r, a=a: ledger.collected(r, a),
            model.collect(r, a),
        )
        yield (
            f"apply {r}/{a}",
            lambda ledger, r=r, a=a: ledger.apply(entry(r, a)),
            model.apply(r, a),
        )


def check(path: Path, model: Model) -> None:
    """Reopening, as after a crash, shows exactly the model."""
    with closing(RunLedger(path)) as ledger:
        assert sorted(ledger.attempts()) == sorted(model.attempts)
        assert ledger.applied() == [entry(r, a) for r, a in enumerate(model.applied)]


def explore(folder: Path, depth: int) -> tuple[int, int]:
    """Breadth first over every step from every state; returns states and steps tried.

    A state is all that the file holds, so two ways to one state need no second visit.
    """
    first = folder / "0.sqlite"
    RunLedger(first).close()
    frontier: dict[Model, Path] = {Model(): first}
    seen, tried = {Model()}, 0
    for _ in range(depth):
        following: dict[Model, Path] = {}
        for model, path in frontier.items():
            for name, act, expected in steps_from(model):
                tried += 1
                copy = folder / f"{tried}.sqlite"
                shutil.copy(path, copy)
                with closing(RunLedger(copy)) as ledger:
                    if expected is None:
                        with pytest.raises(StoreError):
                            act(ledger)
                    else:
                        act(ledger)
                after = model if expected is None else expected
                check(copy, after)
                if after in seen:
                    copy.unlink()
                else:
                    seen.add(after)
                    following[after] = copy
                assert _is_sound(after), name
        frontier = following
    return len(seen), tried


def _is_sound(model: Model) -> bool:
    """Applied once, in order, none skipped; of an applied round all else is abandoned."""
    living = [row for row in model.attempts if row[2] in ("issued", "collected")]
    applied = sorted((r, a) for r, a, state in model.attempts if state == "applied")
    return len(living) <= 1 and applied == list(enumerate(model.applied))


def test_all_interleavings_of_issue_collect_apply_and_crash(tmp_path: Path, full: bool) -> None:
    states, tried = explore(tmp_path, 12 if full else 8)
    assert states >= (250 if full else 50)
    assert tried > 5 * states


def test_an_attempt_of_a_dead_process_can_never_be_applied(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(RunLedger(path)) as dead:
        attempt = dead.issue(0, ["a"])
        dead.collected(0, attempt)
    with closing(RunLedger(path)) as living:
        assert living.issue(0, ["a"]) == attempt + 1
        with pytest.raises(StoreError, match="not collected"):
            living.apply(entry(0, attempt))
        living.collected(0, attempt + 1)
        living.apply(entry(0, attempt + 1))
        with pytest.raises(StoreError):
            living.apply(entry(0, attempt + 1))
        assert [done.attempt for done in living.applied()] == [1]


def test_two_processes_that_race_apply_a_round_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(RunLedger(path)) as one, closing(RunLedger(path)) as other:
        first, second = one.issue(0, ["a"]), other.issue(0, ["a"])
        assert (first, second) == (0, 1)
        other.collected(0, second)
        with pytest.raises(StoreError):
            one.collected(0, first)
        other.apply(entry(0, second))
        with pytest.raises(StoreError, match="round 1 is due"):
            one.issue(0, ["a"])
        assert one.issue(1, ["b"]) == 0


@pytest.mark.parametrize("value", [0, "text", None, [1, 2.5], {"a": {"b": True}}, "\u2028"])
def test_facts_come_back(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(RunLedger(path)) as ledger:
        assert ledger.fact("x") is None
        ledger.note("x", "older")
        ledger.note("x", value)
    with closing(RunLedger(path)) as ledger:
        assert ledger.fact("x") == value


def test_a_metric_that_is_not_finite_is_refused_and_the_round_not_applied(tmp_path: Path) -> None:
    with closing(RunLedger(tmp_path / "ledger.sqlite")) as ledger:
        ledger.issue(0, ["a"])
        ledger.collected(0, 0)
        bad = replace(entry(0, 0), metrics={"loss": float("nan")})
        with pytest.raises(StoreError, match="JSON"):
            ledger.apply(bad)
        assert ledger.applied() == []
        assert ledger.attempts() == [(0, 0, "collected")]
        ledger.apply(entry(0, 0))


def written(path: Path) -> None:
    with closing(RunLedger(path)) as ledger:
        ledger.issue(0, ["a"])
        ledger.collected(0, 0)
        ledger.apply(entry(0, 0))


def with_sql(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            for statement in statements:
                db.execute(statement)

    return change


DAMAGE: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("this is no database, but it is long enough" * 40),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:6000]),
    "scrambled": lambda path: path.write_bytes(path.read_bytes()[:200] + b"\xff" * 20000),
    "other schema": with_sql("update facts set value = '\"focus.ledger/9\"' where name = 'schema'"),
    "no schema": with_sql("delete from facts"),
    "schema is no JSON": with_sql("update facts set value = '{' where name = 'schema'"),
    "a foreign database": with_sql(
        "drop table facts", "drop table attempts", "drop table applied", "create table x (y)"
    ),
    "foreign columns": with_sql("drop table facts", "create table facts (n, v)"),
    "no rounds": with_sql("drop table applied"),
    "metrics are no JSON": with_sql("update applied set metrics = 'nope'"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_or_foreign_file_is_refused_by_name(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite"
    written(path)
    damage(path)
    before = path.read_bytes()

    def use() -> None:
        with closing(RunLedger(path)) as ledger:
            ledger.applied()
            ledger.attempts()

    with pytest.raises(StoreError, match=r"ledger\.sqlite"):
        use()
    assert path.read_bytes() == before, "a file that is not ours was changed"


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        RunLedger(tmp_path)


def test_a_ledger_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.touch()
    with closing(RunLedger(path)) as ledger:
        assert ledger.issue(0, ["a"]) == 0
