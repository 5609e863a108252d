"""Fresh outcomes on disk: only they are judged on, only the latest, only of unseen problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from focus.errors import RecordError
from focus.problem import Problem
from focus.records import JsonlDirectory
from focus.records.records import CriticContext
from focus.training.gate import GateSample
from focus.training.outcomes import base_rates, fresh_records, read_fresh
from focus.training.solving import FreshOutcome
from focus.tree import Identity


def outcomes(problem: int, *ys: float) -> list[FreshOutcome]:
    context = CriticContext(renderer="token_chunk/1", text="", ids=(1,))
    prompt = Problem(id=problem, prompt=f"question {problem}", label="1")
    return [FreshOutcome(prompt, depth, context, 0.5, y) for depth, y in enumerate(ys)]


def write(folder: Path, found: list[FreshOutcome], *, round: int = 0) -> None:
    sink = JsonlDirectory(folder)
    groups = fresh_records(
        found,
        identity=Identity(run="r", round=round),
        policy_version=f"actor-{round}",
        critic_version="constant",
    )
    for group in groups:
        sink.write(group)


def test_they_come_back_with_a_critics_values(tmp_path: Path) -> None:
    write(tmp_path, [*outcomes(1, 1.0, 0.0), *outcomes(2, 0.5)])
    found = read_fresh([tmp_path], trained=())
    assert len(found.records) == 3
    values = [0.1, 0.2, 0.3]
    assert found.samples(values) == [
        GateSample(record.source.key, record.depth, value, record.target)
        for record, value in zip(found.records, values, strict=True)
    ]
    assert sorted(record.target for record in found.records) == [0.0, 0.5, 1.0]


def test_only_the_latest_rounds_are_by_the_current_actor(tmp_path: Path) -> None:
    for round in range(3):
        write(tmp_path, outcomes(round, 1.0), round=round)
    assert read_fresh([tmp_path], trained=()).to_dict()["rounds"] == [2]
    assert read_fresh([tmp_path], trained=(), rounds=2).to_dict()["rounds"] == [1, 2]


def test_problems_that_were_trained_on_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, [*outcomes(1, 1.0, 0.0), *outcomes(2, 0.5)])
    seen = {outcomes(1, 1.0)[0].problem.key}
    found = read_fresh([tmp_path], trained=seen)
    assert (len(found.records), found.left_out) == (1, 2)


def test_a_regression_target_is_never_judged_on(tmp_path: Path) -> None:
    [group] = fresh_records(
        outcomes(1, 1.0), identity=Identity(run="r"), policy_version="a", critic_version="c"
    )
    for target in (replace(group[0], diagnostics={}), replace(group[0], count=2)):
        folder = tmp_path / f"{target.count}"
        JsonlDirectory(folder).write([target])
        with pytest.raises(RecordError, match="regression target"):
            read_fresh([folder], trained=())


def test_constants_are_fitted_to_outcomes_where_records_carry_them() -> None:
    [group] = fresh_records(
        outcomes(1, 1.0, 0.0), identity=Identity(run="r"), policy_version="a", critic_version="c"
    )
    root, inner = group
    refined = replace(root, target=0.9, count=3, diagnostics={"samples": 3.0, "mean": 1.0})
    rates = base_rates([refined, inner])
    assert rates.constant == pytest.approx(0.75)
    assert rates.by_depth == {0: 1.0, 1: 0.0}
    with pytest.raises(ValueError, match="no records"):
        base_rates([])
