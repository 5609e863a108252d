"""Nothing in the package can run code that it reads, or import against the ranks."""

import ast
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "src").rglob("*.py"))

MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "imp"}
CALLS = {"eval", "exec", "yaml.load", "torch.load", "np.load", "numpy.load", "os.system"}
KEYWORDS = {("trust_remote_code", True), ("shell", True), ("allow_pickle", True)}


def findings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names = {alias.name.partition(".")[0] for alias in node.names}
                yield from (f"import {name}" for name in names & MODULES)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                yield f"from {module} import"
            case ast.Call():
                if ast.unparse(node.func) in CALLS:
                    yield f"{ast.unparse(node.func)}()"
                for keyword in node.keywords:
                    value = keyword.value
                    if isinstance(value, ast.Constant) and (keyword.arg, value.value) in KEYWORDS:
                        yield f"{keyword.arg}={value.value}"


def test_the_scan_finds_what_it_looks_for() -> None:
    source = "import pickle\nfrom dill import x\neval('1')\nf(shell=True)\ntorch.load(p)"
    assert len(list(findings(ast.parse(source)))) == 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_module_loads_code_from_data(path: Path) -> None:
    assert list(findings(parsed(path))) == []


def parsed(path: Path) -> ast.Module:
    """Without a collection in between: 3.11 loses count of its depth when one parses too."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


def swallowing(tree: ast.AST) -> Iterator[int]:
    """Lines of handlers that catch everything and say nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = "" if node.type is None else ast.unparse(node.type)
            silent = all(isinstance(part, ast.Pass) for part in node.body)
            if silent and caught in ("", "Exception", "BaseException"):
                yield node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_handler_swallows_everything(path: Path) -> None:
    assert list(swallowing(parsed(path))) == []


def test_imports_point_down_the_ranks() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
