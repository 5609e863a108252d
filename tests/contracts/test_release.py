"""A release is one number everywhere, and its changelog entry has a date."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import focus

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """scripts/check_release, which has no ending."""
    path = str(ROOT / "scripts" / "check_release")
    loader = importlib.machinery.SourceFileLoader("check_release", path)
    spec = importlib.util.spec_from_loader("check_release", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def made_ready(folder: Path, *, project: str, cited: str, heading: str) -> Path:
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "{project}"\n')
    (folder / "CITATION.cff").write_text(f"version: {cited}\n")
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
    return folder


def test_a_ready_version_has_no_fault(script: ModuleType, tmp_path: Path) -> None:
    root = made_ready(tmp_path, project="1.2.3", cited="1.2.3", heading="[1.2.3] - 2026-01-31")
    assert script.faults("1.2.3", root) == []


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"project": "1.2.2"}, "pyproject.toml"),
        ({"cited": "1.2.2"}, "CITATION.cff"),
        ({"heading": "[1.2.3] - unreleased"}, "CHANGELOG.md"),
    ],
)
def test_each_place_that_disagrees_is_named(
    script: ModuleType, tmp_path: Path, change: dict[str, str], culprit: str
) -> None:
    good = {"project": "1.2.3", "cited": "1.2.3", "heading": "[1.2.3] - 2026-01-31"}
    [fault] = script.faults("1.2.3", made_ready(tmp_path, **{**good, **change}))
    assert culprit in fault


def test_all_places_agree_now(script: ModuleType) -> None:
    """But for the date, which comes with the tag."""
    left = script.faults(focus.__version__)
    assert [fault for fault in left if "CHANGELOG" not in fault] == []
