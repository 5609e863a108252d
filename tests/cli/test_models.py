"""`focus models` and `focus doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from focus.cli.doctor import examine
from focus.models import BUILTIN

from .conftest import Invoke


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOCUS_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def test_the_list_says_what_is_there_and_how_to_get_the_rest(cache: Path, invoke: Invoke) -> None:
    (cache / "mine").mkdir(parents=True)
    (cache / "mine" / "config.json").write_text("{}")
    page = " ".join(invoke("models").stdout.split())
    assert "builtin" in page
    assert "MB in" in page
    assert "not installed: focus models add smollm2" in page
    assert f"added {cache / 'mine'}, 2 B" in page


def test_an_added_model_is_listed_by_its_name(cache: Path, invoke: Invoke) -> None:
    folder = cache / "smollm2-135m-instruct"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert "not installed" not in invoke("models").stdout
    assert invoke("models", "path", "smollm2").stdout.strip() == str(folder)


def test_a_path_is_printed_alone(invoke: Invoke) -> None:
    assert invoke("models", "path", "builtin").stdout == f"{BUILTIN}\n"


def test_a_model_that_is_not_there_names_the_remedy(invoke: Invoke) -> None:
    assert "focus models add smollm2" in invoke("models", "path", "smollm2", code=1).stderr


def test_only_known_models_can_be_added(invoke: Invoke) -> None:
    assert "cannot be added" in invoke("models", "add", "gpt-9", code=2).stderr


def test_doctor_finds_this_machine_well(invoke: Invoke) -> None:
    findings = json.loads(invoke("doctor", "--json").stdout)
    assert {finding["name"] for finding in findings} >= {
        "python",
        "torch",
        "model",
        "grading",
        "disk",
        "devices",
    }
    assert all(finding["state"] == "ok" or finding["remedy"] for finding in findings)


def test_doctor_prints_a_line_for_each_finding(invoke: Invoke) -> None:
    page = invoke("doctor").stdout
    assert page.count("✓") >= 6
    assert "model" in page


def test_doctor_ends_with_code_1_when_something_is_broken(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("doctor", "--model", tmp_path / "gone", code=1)
    assert "✗" in result.stdout
    broken = [finding for finding in examine(str(tmp_path)) if finding.state == "broken"]
    assert [finding.name for finding in broken] == ["model"]
    assert broken[0].remedy
