"""`focus check env`: what a user sees of a sound environment, a broken one and a wrong name."""

import json
from pathlib import Path

import pytest

from .conftest import Invoke

MODULE = """
import copy
from focus.agent import Turns
from focus.agent.episodes import CopiedEnv
from focus.problem import Problem
from focus.testing import EnvCase
from focus.testing.episodes import Tape

def make():
    return CopiedEnv(Tape)

def shallow():
    return CopiedEnv(Tape, copy=copy.copy)

def needing(tape):
    return CopiedEnv(tape)

def case():
    return EnvCase(env=make, problem=Problem(id=1, prompt="Talk."), actions=["+", "x"])

CASE = case()
NUMBER = 5
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an importable module with environments."""
    name = f"own_env_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize("what", ["case", "CASE"])
def test_a_sound_environment_exits_with_0(what: str, module: str, invoke: Invoke) -> None:
    done = invoke("check", "env", f"{module}:{what}", "--sequences", "5")
    assert "every law held" in done.stdout
    assert "ok    isolation         5 sequences" in done.stdout


def test_a_broken_one_is_shown_with_the_shortest_script(module: str, invoke: Invoke) -> None:
    words = ("check", "env", f"{module}:shallow", "--action", "+", "--sequences", "10")
    done = invoke(*words, code=1)
    assert "broken: isolation" in done.stdout
    assert "2. step a fork of the first state" in done.stdout
    assert "3. " not in done.stdout
    found = json.loads(invoke(*words, "--json", code=1).stdout)
    assert not found["ok"]
    assert [f["name"] for f in found["findings"] if f["state"] == "broken"] == ["isolation"]


def test_replies_are_read_as_turns_where_that_is_said(module: str, invoke: Invoke) -> None:
    invoke(
        "check", "env", f"{module}:make", "--turns", "hermes", "--action", "hi", "--sequences", "2"
    )


@pytest.mark.parametrize(
    ("what", "remedy"),
    [
        ("{0}", "not of the form module:name"),
        ("{0}_not:make", "No module named"),
        ("{0}:nothing", "has no 'nothing'"),
        ("{0}:make", "give --action"),
        ("{0}:needing", "cannot be called without arguments"),
        ("{0}:NUMBER", "neither an EnvCase nor"),
    ],
)
def test_a_wrong_name_says_what_to_do(what: str, remedy: str, module: str, invoke: Invoke) -> None:
    done = invoke("check", "env", what.format(module), code=1)
    assert remedy in done.stderr
