"""The planted faults still fit the source, and the stored run found every one of them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "bench" / "mutation"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"mutation_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MUTANTS: tuple[Any, ...] = _load("mutants").load_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_fault_fits_the_present_source_and_names_real_tests(mutant: Any) -> None:
    source = (ROOT / mutant.file).read_text("utf-8")
    assert mutant.applied(source) != source
    assert mutant.fault.endswith(".")
    for test in mutant.tests:
        assert (ROOT / test).exists(), test


def test_thirty_faults_are_spread_over_all_parts() -> None:
    assert [mutant.id for mutant in MUTANTS] == [f"M{n:02d}" for n in range(1, 31)]
    assert len({mutant.case for mutant in MUTANTS}) == 30
    assert len({mutant.file for mutant in MUTANTS}) >= 20
    areas = {mutant.area for mutant in MUTANTS}
    assert areas >= {"tokens", "records", "search", "credit", "policies", "execution", "collect"}
    assert areas >= {"critic", "sink", "grading", "slime", "training", "agent", "tree", "rendering"}


def test_a_fault_that_does_not_fit_is_refused() -> None:
    mutant = MUTANTS[0]
    for source in ("", mutant.before * 2, f"({mutant.before}"):
        with pytest.raises(ValueError, match="M01"):
            mutant.applied(source)


def test_the_stored_run_caught_all_of_them() -> None:
    stored = json.loads((FOLDER / "result.json").read_text("utf-8"))
    assert (stored["planted"], stored["caught"], stored["survived"]) == (30, 30, 0)
    assert [entry["id"] for entry in stored["mutants"]] == [mutant.id for mutant in MUTANTS]
    assert [entry["digest"] for entry in stored["mutants"]] == [m.digest for m in MUTANTS]
