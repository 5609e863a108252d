"""What a session reads: stable sides, the wanted targets, every prompt once per pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError, RecordError, StoreError
from focus.integrations.critic.ledger import PromptHome
from focus.integrations.critic.material import Folders, Material, steps_of
from focus.integrations.critic.settings import CriticTraining
from focus.records import JsonlDirectory

from .samples import key_of, prompt, write_round

SETTINGS = CriticTraining(held_out=0.3)


def material(numbers: range, settings: CriticTraining = SETTINGS) -> Material:
    return Material.of([prompt(number) for number in numbers], settings, targets="recorded")


def test_a_problem_stays_on_its_side_whatever_else_is_there() -> None:
    whole = material(range(100))
    held = {record.source.key for record in whole.held_records}
    assert 15 <= len(held) <= 45
    again = Material.of(
        [prompt(number, round=5) for number in range(60, 140)], SETTINGS, targets="recorded"
    )
    shared = {key_of(number) for number in range(60, 100)}
    assert {r.source.key for r in again.held_records} & shared == held & shared
    assert held.isdisjoint({record.source.key for record in whole.records})
    assert whole.keys == {key_of(number) for number in range(100)}


def test_a_session_of_held_out_problems_only_trains_on_them() -> None:
    [number] = [n for n in range(100) if not material(range(n, n + 1)).held_records][:1]
    assert len(material(range(number, number + 1)).train) == 1
    every = CriticTraining(held_out=0.999)
    assert len(material(range(3), every).train) == 3


def test_targets_and_weights() -> None:
    [first, *_] = prompt(1)
    seen = replace(first, target=0.7, count=3, diagnostics={"samples": 4.0, "mean": 0.25})
    blind = replace(first, node=1, target=0.7, count=1, diagnostics={"samples": 0.0})
    plain = replace(first, node=2, target=0.7, count=3)

    def pairs(targets: str, weight: float = 1.0) -> list[tuple[float, float]]:
        settings = CriticTraining(held_out=0, count_weight=weight)
        [examples] = Material.of([[seen, blind, plain]], settings, targets=targets).train
        return [(example.target, example.weight) for example in examples]

    assert pairs("recorded") == [(0.7, 0.75), (0.7, 0.5), (0.7, 0.75)]
    assert pairs("outcomes") == [(0.25, 0.8), (0.7, 0.0), (0.7, 0.75)]
    assert pairs("recorded", weight=0.0) == [(0.7, 1.0)] * 3
    with pytest.raises(RecordError, match=r"outside the critic's range"):
        Material.of([[replace(first, target=1.2)]], SETTINGS, targets="recorded")


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 5))
def test_a_pass_holds_every_prompt_once(prompts: int, batch: int, pass_index: int) -> None:
    settings = CriticTraining(held_out=0, batch_contexts=batch)
    train = material(range(prompts), settings).train
    steps = steps_of(train, settings, session=1, pass_index=pass_index)
    flat = [example.record for step in steps for group in step for example in group]
    assert sorted(flat) == sorted(example.record for group in train for example in group)
    assert all(sum(map(len, step)) >= batch for step in steps[:-1])
    assert steps == steps_of(train, settings, session=1, pass_index=pass_index)


def test_folders_list_accepted_prompts_and_read_them(tmp_path: Path) -> None:
    write_round(tmp_path / "a", range(3))
    write_round(tmp_path / "a", range(3, 5), round=1, accept=False)
    write_round(tmp_path / "b", range(2), run="other")
    folders = Folders([tmp_path / "a", tmp_path / "b", tmp_path / "not yet"])
    homes = folders.prompts()
    assert len(homes) == 5
    assert {record.source.identity.run for group in folders.read(homes) for record in group} == {
        "r",
        "other",
    }
    with pytest.raises(StoreError, match="'gone'"):
        folders.read([PromptHome("gone", homes[0].name)])
    JsonlDirectory(tmp_path / "c").write(prompt(9))
    with pytest.raises(ConfigError, match="both hold records of run 'r'"):
        Folders([tmp_path / "a", tmp_path / "c"]).prompts()
    with pytest.raises(ConfigError, match="at least one"):
        Folders([])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"held_out": 1.0}, "held_out"),
        ({"passes": 0}, "passes"),
        ({"passes": "two"}, "wants int"),
        ({"loss": "huber"}, "mse, bce"),
        ({"loss": "bce", "value_clip": 0.2}, "squared errors"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"value_range": [1.0, 0.0]}, "value_range"),
        ({"colour": 1}, "unknown setting 'colour'"),
    ],
)
def test_settings_that_cannot_be_honoured(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CriticTraining().updated(values)
