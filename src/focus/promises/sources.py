"""Findings in Python sources: ways in which data could become code, or an error nothing."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path

import focus

__all__ = ("code_from_data", "parsed", "shipped", "silent_handlers")

_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "imp"}
_CALLS = {"eval", "exec", "yaml.load", "torch.load", "np.load", "numpy.load", "os.system"}
_KEYWORDS = {("trust_remote_code", True), ("shell", True), ("allow_pickle", True)}


def shipped() -> list[Path]:
    """Every module of this package."""
    return sorted(Path(focus.__file__).parent.rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    """Without a collection in between: 3.11 loses count of its depth when one parses too."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


def code_from_data(tree: ast.AST) -> Iterator[str]:
    """Imports and calls that turn what was read into code.

    >>> list(code_from_data(ast.parse("import pickle")))
    ['import pickle']
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names = {alias.name.partition(".")[0] for alias in node.names}
                yield from (f"import {name}" for name in names & _MODULES)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in _MODULES:
                yield f"from {module} import"
            case ast.Call():
                yield from _risky_call(node)


def _risky_call(node: ast.Call) -> Iterator[str]:
    if ast.unparse(node.func) in _CALLS:
        yield f"{ast.unparse(node.func)}()"
    for keyword in node.keywords:
        value = keyword.value
        if isinstance(value, ast.Constant) and (keyword.arg, value.value) in _KEYWORDS:
            yield f"{keyword.arg}={value.value!r}"


def silent_handlers(tree: ast.AST) -> Iterator[int]:
    """Lines of handlers that catch everything and say nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = "" if node.type is None else ast.unparse(node.type)
            silent = all(isinstance(part, ast.Pass) for part in node.body)
            if silent and caught in ("", "Exception", "BaseException"):
                yield node.lineno
