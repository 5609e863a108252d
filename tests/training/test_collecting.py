"""The engine behind ``focus collect``, on scripted replies."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus.errors import CollectionFailed, ConfigError, FatalError, Refused, SchemaError, StoreError
from focus.policies.base import RequestTag
from focus.records import read_critic_records, read_problems
from focus.sampling import Sampling
from focus.testing.policies import ScriptedPolicy, Wrapper
from focus.tokens import Generation, TokenIds
from focus.training.collecting import CollectRun, CollectSettings, Refusal
from focus.training.collection_folder import CollectionFolder

ROWS = [{"problem": f"Compute {n} + 1.", "solution": str(n + 1)} for n in range(3)]


def solve(prompt: str, so_far: str, rng: random.Random) -> str:
    """A line of steps, then an answer that is right about half of the time."""
    return ("step " * 3 + rf"\boxed{{{rng.choice('12')}}}")[len(so_far) :]


class Faulty(Wrapper):
    """Fails requests whose prompt holds a mark."""

    def __init__(self, mark: str, error: Exception) -> None:
        super().__init__(ScriptedPolicy(solve))
        self.mark = mark
        self.error = error

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        if self.mark in self.decode(prefix):
            raise self.error
        return await super().generate(prefix, sampling, tag=tag)


class Heard:
    """A reporter that remembers; it may stop the work after some rows."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.refusals: dict[int, Refusal] = {}
        self.done = 0
        self.scope = anyio.CancelScope()
        self._stop_after = stop_after

    def progress(self, done: int, total: int, tokens: int) -> None:
        self.done = done
        if done == self._stop_after:
            self.scope.cancel()

    def refused(self, line: int, refusal: Refusal) -> None:
        self.refusals[line] = refusal


def make_settings(**changes: Any) -> CollectSettings:
    return CollectSettings(
        **{
            "problems": "rows.jsonl",
            "model": "scripted",
            "tokens": 70,
            "segment": 8,
            "allowance": 32,
            "concurrency": 2,
            **changes,
        }
    )


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]] = ROWS) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def collect(
    path: Path,
    out: Path,
    policy: Any = None,
    *,
    report: Heard | None = None,
    wanted: CollectSettings | None = None,
    **options: Any,
) -> dict[str, Any]:
    wanted = wanted or make_settings()
    report = report or Heard()
    run = CollectRun(
        settings=wanted,
        policy=policy or ScriptedPolicy(solve),
        folder=CollectionFolder.open(out, wanted.to_dict(), versions={}),
        report=report,
        **options,
    )
    summary: dict[str, Any] = {}
    with report.scope:
        summary = await run.run(read_problems(path))
    return summary


def index(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]


def results(out: Path) -> dict[str, bytes]:
    """Every file that a trainer or a viewer reads."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for folder in ("trees", "actor", "critic", "rows")
        for path in sorted((out / folder).iterdir())
    }


@pytest.mark.anyio
async def test_what_is_drawn_does_not_depend_on_where_files_lie(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl")
    moved = make_settings(problems="elsewhere.jsonl", model="moved/scripted")
    await collect(path, tmp_path / "here")
    await collect(path, tmp_path / "there", wanted=moved)
    assert results(tmp_path / "here") == results(tmp_path / "there")


@pytest.mark.anyio
async def test_the_books_of_all_rows_add_up(tmp_path: Path) -> None:
    policy = ScriptedPolicy(solve)
    summary = await collect(write_rows(tmp_path / "rows.jsonl"), tmp_path / "out", policy)
    assert (summary["rows"], summary["collected"], summary["left"]) == (3, 3, 0)
    assert summary["ledger"]["requests_sent"] == policy.requests
    assert summary["ledger"]["trees"] == 3
    assert summary["ledger"]["tokens_generated"] == sum(
        row["tokens"] for row in index(tmp_path / "out")
    )
    records = list(read_critic_records(tmp_path / "out" / "critic"))
    assert len(records) == summary["critic_records"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary


@pytest.mark.anyio
async def test_capacity_and_folder_change_no_byte(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl")
    for capacity in (1, 3, 64):
        await collect(path, tmp_path / str(capacity), capacity=capacity)
    assert results(tmp_path / "1") == results(tmp_path / "3") == results(tmp_path / "64")


@pytest.mark.anyio
async def test_another_seed_draws_other_trees(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl")
    await collect(path, tmp_path / "a")
    await collect(path, tmp_path / "b", wanted=make_settings(seed=1))
    assert set(results(tmp_path / "a").values()) != set(results(tmp_path / "b").values())


@pytest.mark.anyio
async def test_a_whole_row_is_not_collected_again(tmp_path: Path) -> None:
    path, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out"
    first = await collect(path, out)
    before, policy = results(out), ScriptedPolicy(solve)
    again = await collect(path, out, policy)
    assert policy.requests == 0
    assert results(out) == before
    assert again["fresh"] == 0
    assert {**again, "fresh": 0, "wall_s": 0} == {**first, "fresh": 0, "wall_s": 0}


@pytest.mark.anyio
@pytest.mark.parametrize(("stop_after", "capacity"), [(1, 1), (2, 64)])
async def test_stopped_and_repeated_equals_undisturbed(
    stop_after: int, capacity: int, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "rows.jsonl")
    await collect(path, tmp_path / "whole")
    await collect(path, tmp_path / "cut", report=Heard(stop_after), capacity=capacity)
    assert len(index(tmp_path / "cut")) == len(ROWS)
    await collect(path, tmp_path / "cut")
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    assert index(tmp_path / "cut") == index(tmp_path / "whole")


@pytest.mark.anyio
async def test_files_of_a_row_that_was_cut_off_are_replaced(tmp_path: Path) -> None:
    path, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out"
    await collect(path, out)
    before = results(out)
    for row in (out / "rows").iterdir():
        row.unlink()
    await collect(path, out)
    assert results(out) == before


@pytest.mark.anyio
async def test_a_row_that_fails_is_reported_and_tried_again_next_time(tmp_path: Path) -> None:
    path, out, report = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out", Heard()
    summary = await collect(path, out, Faulty("2 + 1", Refused("no")), report=report)
    assert (summary["collected"], summary["failed"], summary["bad"]) == (2, 1, 0)
    assert report.refusals[3].status == "failed"
    assert "no" in report.refusals[3].reason
    assert [row["status"] for row in index(out)] == ["collected"] * 2 + ["failed"]
    summary = await collect(path, out)
    assert (summary["collected"], summary["fresh"], summary["failed"]) == (3, 1, 0)


@pytest.mark.anyio
async def test_a_row_at_fault_is_bad_and_costs_nothing(tmp_path: Path) -> None:
    rows = [*ROWS[:1], {"problem": "Compute.", "solution": "1 and 2"}, {"problem": "", "label": 1}]
    path, report = write_rows(tmp_path / "rows.jsonl", rows), Heard()
    summary = await collect(path, tmp_path / "out", report=report)
    assert (summary["collected"], summary["bad"], summary["rows"]) == (1, 2, 3)
    assert list(report.refusals) == [2]
    assert [row["status"] for row in index(tmp_path / "out")] == ["collected", "bad", "bad"]


@pytest.mark.anyio
async def test_what_would_fail_every_row_ends_the_collection(tmp_path: Path) -> None:
    path, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out"
    with pytest.raises(Exception, match="wrong key"):
        await collect(path, out, Faulty("Compute", FatalError("wrong key")), capacity=2)
    assert {row["status"] for row in index(out)} == {"left"}


@pytest.mark.anyio
async def test_a_limit_takes_the_first_rows(tmp_path: Path) -> None:
    summary = await collect(write_rows(tmp_path / "rows.jsonl"), tmp_path / "out", limit=2)
    assert (summary["rows"], summary["collected"]) == (2, 2)
    assert [row["line"] for row in index(tmp_path / "out")] == [1, 2]


@pytest.mark.anyio
async def test_partial_trees_are_kept_when_asked_for(tmp_path: Path) -> None:
    path, policy = write_rows(tmp_path / "rows.jsonl"), Faulty("step step s", Refused("no"))
    refused = await collect(path, tmp_path / "strict", policy)
    kept = await collect(path, tmp_path / "partial", policy, allow_partial=True)
    assert (refused["collected"], refused["failed"]) == (0, 3)
    assert kept["collected"] == 3
    assert all(row["failures"] for row in index(tmp_path / "partial"))


def test_names_do_not_depend_on_what_data_says(tmp_path: Path) -> None:
    rows = [
        {"id": name, "problem": "x", "solution": "1"}
        for name in ("../../up", "a/b", "\x00", 7, "7")
    ]
    problems = read_problems(write_rows(tmp_path / "rows.jsonl", rows)).problems
    names = {CollectionFolder.name_of(problem) for problem in problems}
    assert len(names) == 5
    assert all(len(name) == 32 and name.isalnum() for name in names)


def test_two_processes_cannot_share_a_folder(tmp_path: Path) -> None:
    folders = [CollectionFolder.open(tmp_path / "out", {"seed": 0}, versions={}) for _ in range(2)]
    with (
        folders[0].locked(),
        pytest.raises(StoreError, match="another process"),
        folders[1].locked(),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "content", "error", "reason"),
    [
        ("collect.json", '{"schema":"focus.collect/9"}', SchemaError, "not written by this"),
        ("collect.json", "{", SchemaError, "not readable JSON"),
        ("ledger.sqlite", "", StoreError, "holds a training run"),
        ("notes.txt", "", StoreError, "is not empty"),
    ],
)
def test_a_folder_of_something_else_is_refused(
    name: str, content: str, error: type[Exception], reason: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(error, match=reason):
        CollectionFolder.open(tmp_path, {"seed": 0}, versions={})
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.anyio
async def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    path, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out"
    await collect(path, out)
    next((out / "rows").iterdir()).write_text('{"schema":"focus.collect/1","name":"x"}')
    with pytest.raises(SchemaError, match="is damaged"):
        await collect(path, out)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tokens": 0}, "buys nothing"),
        ({"allowance": 7}, "smaller than one segment of 8"),
        ({"credit": "best"}, "credit must be one of"),
        ({"packing": "box"}, "packing"),
        ({"critic": 1.2}, "outside"),
        ({"critic": float("nan")}, "outside"),
        ({"concurrency": 0}, "must be >= 1"),
        ({"segment": 0}, "at least one token"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], reason: str) -> None:
    policy = ScriptedPolicy(solve)
    with pytest.raises(ConfigError, match=reason):
        make_settings(**change).check(policy)
    assert policy.requests == 0


class Mortal(ScriptedPolicy):
    """Answers some requests, then every further one is a fatal error."""

    def __init__(self, lives: float) -> None:
        super().__init__(solve)
        self.lives = lives

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        if self.requests >= self.lives:
            raise FatalError("the server is gone")
        return await super().generate(prefix, sampling, tag=tag)


@pytest.mark.anyio
async def test_a_row_that_was_cut_off_goes_on_in_the_middle_of_its_tree(tmp_path: Path) -> None:
    """No edge is sampled twice, and the row is the one of an uninterrupted run."""
    path = write_rows(tmp_path / "rows.jsonl", ROWS[:1])
    whole = Mortal(float("inf"))
    await collect(path, tmp_path / "whole", whole)
    with pytest.raises(CollectionFailed):
        await collect(path, tmp_path / "cut", Mortal(4))
    journals = list((tmp_path / "cut" / "journal").rglob("*.jsonl"))
    held = sum(file.read_bytes().count(b"\n") for file in journals)
    assert held >= 3
    again = Mortal(float("inf"))
    summary = await collect(path, tmp_path / "cut", again)
    assert again.requests == whole.requests - held
    assert summary["collected"] == 1
    [tree] = (tmp_path / "cut" / "trees").iterdir()
    assert tree.read_bytes() == (tmp_path / "whole" / "trees" / tree.name).read_bytes()
    assert not list((tmp_path / "cut" / "journal").iterdir())
