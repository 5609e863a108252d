"""What is public stands in `__all__`, resolves, and costs nothing to import."""

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import focus

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
FILES = sorted(SOURCE.rglob("*.py"))

PINNED = {
    "focus": (
        "AdmissionPool",
        "Agent",
        "Allowance",
        "BestFirst",
        "Collection",
        "Collector",
        "Critic",
        "DirectBranchTd",
        "Edges",
        "Env",
        "Execution",
        "ExecutionServices",
        "Fifo",
        "Grpo",
        "Message",
        "Phase",
        "Policy",
        "Problem",
        "RefinedTd",
        "Rloo",
        "Sampling",
        "Search",
        "Segments",
        "StepResult",
        "TokenEntropy",
        "TransformersPolicy",
        "ValueRefinement",
    ),
    "focus.integrations": ("JsonlDirectory",),
}
"""Names that docs and recipes are written against; renaming one needs a decision note."""


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def sort_key(name: str) -> tuple[int, list[str | int]]:
    """CONSTANTS, then Classes, then functions; digits by value."""
    kind = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return kind, [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]


def exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            assert isinstance(node.value, ast.Tuple), "__all__ is a tuple"
            return [ast.literal_eval(element) for element in node.value.elts]
    return None


def defined(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Names bound at module level; whether each is a class or a plain function."""
    for node in tree.body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, not node.decorator_list or isinstance(node, ast.ClassDef)
            case ast.Assign():
                yield from ((ast.unparse(target), False) for target in node.targets)
            case ast.AnnAssign():
                yield ast.unparse(node.target), False
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    yield (alias.asname or alias.name).partition(".")[0], False


@pytest.mark.parametrize("module", MODULES)
def test_all_is_a_sorted_tuple_of_what_the_module_defines(module: str) -> None:
    tree = MODULES[module]
    names, bound = exported(tree), dict(defined(tree))
    is_command = module.startswith("focus.cli.")
    public = {
        name
        for name, is_definition in bound.items()
        if not name.startswith("_") and (is_definition or (names and name in names))
    }
    if names is None:
        assert not public, f"{module} has no __all__"
        return
    assert names == sorted(names, key=sort_key)
    assert len(set(names)) == len(names)
    if "__getattr__" in bound:
        loaded = importlib.import_module(module)
        assert all(hasattr(loaded, name) for name in names)
    else:
        assert set(names) <= bound.keys()
    assert is_command or public <= set(names), f"{module}: public and not in __all__"


def test_focus_offers_exactly_its_homes() -> None:
    offered = [name for names in focus._HOMES.values() for name in names]
    assert sorted([*offered, "__version__"], key=sort_key) == list(focus.__all__)
    assert len(set(offered)) == len(offered)
    assert dir(focus) == sorted(focus.__all__)


@pytest.mark.parametrize("home", focus._HOMES)
def test_each_name_is_public_where_it_lives(home: str) -> None:
    module = importlib.import_module(home)
    for name in focus._HOMES[home]:
        assert name in module.__all__
        assert getattr(focus, name) is getattr(module, name)


def test_type_checkers_see_the_same_names() -> None:
    (block,) = [n for n in MODULES["focus"].body if isinstance(n, ast.If)]
    seen = {
        (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {(home, name) for home, names in focus._HOMES.items() for name in names}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Colector'"):
        _ = focus.Colector


@pytest.mark.parametrize("module", PINNED)
def test_pinned_names_exist(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in PINNED[module] if name not in loaded.__all__] == []
    assert all(hasattr(loaded, name) for name in PINNED[module])


def bench() -> ModuleType:
    path = ROOT / "bench" / "import_cost.py"
    spec = importlib.util.spec_from_file_location("import_cost", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


IMPORT_COST = bench()


@pytest.mark.parametrize("module", IMPORT_COST.CANDIDATES)
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert IMPORT_COST.loaded_by(module) & set(IMPORT_COST.HEAVY) == set()


def test_importing_costs_no_more_than_numpy() -> None:
    modules = (IMPORT_COST.BASELINE, *IMPORT_COST.CANDIDATES)
    medians = IMPORT_COST.median_seconds(modules, runs=5)
    for module in IMPORT_COST.CANDIDATES:
        assert medians[module] <= 1.0 * medians[IMPORT_COST.BASELINE]
