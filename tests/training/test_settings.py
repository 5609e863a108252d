"""Settings: what is written is read back; what cannot be honoured is refused by name."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.training.settings import (
    PRESETS,
    ActorSettings,
    CriticSettings,
    GateSettings,
    TrainSettings,
    load_settings,
    settings_from,
)


def as_toml(values: Mapping[str, Any]) -> str:
    """Plain values first, then one table per mapping."""
    plain = [f"{k} = {json.dumps(v)}" for k, v in values.items() if not isinstance(v, Mapping)]
    tables = [f"[{k}]\n{as_toml(v)}" for k, v in values.items() if isinstance(v, Mapping)]
    return "\n".join([*plain, *tables]) + "\n"


SMALL = st.integers(1, 10**6)
RATE = st.floats(1e-9, 10)
SETTINGS = st.builds(
    TrainSettings,
    task=st.sampled_from(["demo", "gym:leg_counting", "file:a b/ü.jsonl"]),
    seed=st.integers(0, 2**31),
    rounds=SMALL,
    temperature=RATE,
    packing=st.sampled_from(["path", "segment", "tree"]),
    keep_trees=st.integers(0, 9),
    actor=st.builds(
        ActorSettings,
        learning_rate=RATE,
        betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)),
        clip_low=st.floats(0, 1),
        minibatches=SMALL,
    ),
    critic=st.builds(CriticSettings, count_weight=st.floats(0, 9), steps=SMALL),
    gate=st.builds(GateSettings, checkpoints=SMALL, every=SMALL),
)


@given(SETTINGS)
def test_toml_and_json_round_trip(settings: TrainSettings) -> None:
    assert settings_from(json.loads(json.dumps(settings.to_dict()))) == settings


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_written_as_toml_is_read_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(as_toml(PRESETS[name].to_dict()), encoding="utf-8")
    assert load_settings(path) == PRESETS[name]


def test_a_file_changes_only_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("rounds = 3\n[actor]\nlearning_rate = 1\nbetas = [0, 0.5]\n")
    found = load_settings(path, base=PRESETS["smoke"])
    assert found.rounds == 3
    assert (found.actor.learning_rate, found.actor.betas) == (1.0, (0.0, 0.5))
    assert type(found.actor.learning_rate) is float
    assert found.actor.minibatches == PRESETS["smoke"].actor.minibatches
    assert found.critic == PRESETS["smoke"].critic


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"round": 3}, "unknown setting 'round'; known: actor, capacity"),
        ({"actor": {"lr": 1.0}}, "unknown setting 'actor.lr'"),
        ({"actor": 3}, "'actor' is a table"),
        ({"rounds": {}}, "'rounds' wants int"),
        ({"rounds": 3.0}, "'rounds' wants int, got 3.0"),
        ({"rounds": True}, "'rounds' wants int, got True"),
        ({"rounds": "3"}, "'rounds' wants int, got '3'"),
        ({"task": 3}, "'task' wants str"),
        ({"temperature": True}, "'temperature' wants float"),
        ({"temperature": "1"}, "'temperature' wants float"),
        ({"temperature": None}, "'temperature' wants float"),
        ({"actor": {"betas": 0.9}}, "'actor.betas' wants tuple"),
        ({"actor": {"betas": ["a", "b"]}}, "'actor.betas' wants float, got 'a'"),
        ({"actor": {"betas": [True, 0.5]}}, "'actor.betas' wants float, got True"),
    ],
)
def test_an_unknown_name_or_another_type_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from(values)
    assert said in str(caught.value)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "values",
    [
        *(
            {name: bad}
            for name in ("rounds", "prompts", "capacity", "concurrency")
            for bad in (0, -1)
        ),
        *({name: 0} for name in ("tokens_per_prompt", "replay_rounds", "eval_problems")),
        {"keep_trees": -1},
        {"packing": "box"},
        *({"temperature": bad} for bad in (0.0, -1.0, NAN, INF)),
        *({"actor": {"learning_rate": bad}} for bad in (0.0, NAN, INF)),
        *({"actor": {"weight_decay": bad}} for bad in (-0.1, NAN, INF)),
        *({"actor": {"clip_low": bad}} for bad in (-0.1, 1.1, NAN)),
        *({"actor": {"clip_high": bad}} for bad in (-0.1, NAN, INF)),
        *({"actor": {"betas": bad}} for bad in ([0.9], [0.9, 1.0], [-0.1, 0.5], [NAN, 0.5], [])),
        *({"actor": {"grad_norm": bad}} for bad in (0.0, NAN)),
        {"actor": {"minibatches": 0}},
        {"actor": {"warmup": -1}},
        *({"actor": {"step_kl": bad}} for bad in (-1e-4, NAN, INF)),
        {"actor": {"epochs": 0}},
        *({"critic": {"count_weight": bad}} for bad in (-1.0, NAN)),
        {"critic": {"steps": 0}},
        {"gate": {"every": 0}},
        {"gate": {"checkpoints": 0}},
        *({"gate": {"confidence_z": bad}} for bad in (0.0, NAN)),
    ],
    ids=str,
)
def test_a_value_out_of_bounds_is_refused_by_name(values: dict[str, Any]) -> None:
    (name, value), *_ = values.items()
    with pytest.raises(ConfigError, match=next(iter(value)) if isinstance(value, dict) else name):
        settings_from(values)


@pytest.mark.parametrize("content", [b"rounds = ", b"\xff\xfe", b"rounds = 1\nrounds = 2\n"])
def test_a_file_that_is_no_toml_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"run\.toml"):
        load_settings(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_settings(tmp_path / "none.toml")


def test_settings_are_frozen_values() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainSettings().rounds = 3  # type: ignore[misc]
    assert TrainSettings() == TrainSettings()
