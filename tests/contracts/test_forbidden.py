"""Nothing in the package can run code that it reads, or import against the ranks."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from focus.promises.sources import code_from_data, parsed, shipped, silent_handlers

ROOT = Path(__file__).parents[2]
FILES = shipped()


def test_the_scan_finds_what_it_looks_for() -> None:
    source = "import pickle\nfrom dill import x\neval('1')\nf(shell=True)\ntorch.load(p)"
    assert len(list(code_from_data(ast.parse(source)))) == 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_module_loads_code_from_data(path: Path) -> None:
    assert list(code_from_data(parsed(path))) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_handler_swallows_everything(path: Path) -> None:
    assert list(silent_handlers(parsed(path))) == []


def test_imports_point_down_the_ranks() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
