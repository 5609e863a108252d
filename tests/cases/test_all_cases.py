"""Every open case has a test that carries its id."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FAMILIES = {
    "tokens": (1, 2, 4, 5, 7, 8, 10, 11),
    "masks": (13, 14, 16, 17),
    "log-probs": (19, 20, 22, 23, 25, 26),
    "endings": (28, 29, 31, 32, 34, 35),
    "transport": (37, 38, 40, 41, 43, 44),
    "concurrency": (46, 47, 49, 50, 52, 53),
    "answers": (55, 56, 58, 59, 61, 62),
    "files": (64, 65, 67, 68),
    "credit": (70, 71, 73, 74, 76, 77),
    "evaluation": (79, 80, 82),
    "tools": (83, 85),
    "resume": (86, 88, 89),
}
CASES = {f"b{number:02d}" for numbers in FAMILIES.values() for number in numbers}


def names() -> list[str]:
    files = Path(__file__).parent.glob("test_*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [function.name for function in functions if function.name.startswith("test_")]


def test_there_are_sixty_cases() -> None:
    assert len(CASES) == 60


def test_every_case_has_a_test_and_no_test_names_another() -> None:
    named = {case for name in names() for case in re.findall(r"b\d\d", name)}
    assert named == CASES
