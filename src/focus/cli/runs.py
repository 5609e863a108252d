"""Reads what a run left on disk, for `focus show`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from focus.errors import SchemaError, StoreError
from focus.records.files import read_if_present
from focus.records.strict_json import loads
from focus.records.tree_store import StoredTree, load_stored_tree

__all__ = ("RunFiles", "kind_of", "read_run", "read_trees")

Kind = Literal["tree", "training", "collection"]


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """One folder's overview.

    Attributes:
        kind: what it is.
        root: the folder.
        settings: as resolved.
        summary: None while the run is not complete.
        rows: rounds of a training run, index lines of a collection.
        trees: files of trees, in order.
    """

    kind: Kind
    root: Path
    settings: Mapping[str, Any]
    summary: Mapping[str, Any] | None
    rows: tuple[Mapping[str, Any], ...]
    trees: tuple[Path, ...] = field(default=())


def kind_of(path: Path) -> Kind:
    """What a path given to `focus show` is.

    Raises:
        StoreError: nothing that can be shown.
    """
    if path.is_file():
        return "tree"
    if (path / "collect.json").exists():
        return "collection"
    if (path / "ledger.sqlite").exists() or (path / "metrics.jsonl").exists():
        return "training"
    if path.is_dir():
        raise StoreError(f"{path} holds no run and no collection; give a RUN folder or a tree file")
    raise StoreError(f"{path}: there is no such file or folder")


def read_run(root: Path) -> RunFiles:
    """Overview of a training run or a collection, finished or not.

    Raises:
        StoreError: a file is unreadable.
        SchemaError: a file is damaged.
    """
    kind = kind_of(root)
    if kind == "collection":
        settings = (_object(root / "collect.json") or {}).get("settings", {})
        rows = _lines(root / "index.jsonl")
        trees = tuple(root / row["tree"] for row in rows if row.get("tree"))
    else:
        settings = _object(root / "config.json") or {}
        rows = _lines(root / "metrics.jsonl")
        trees = tuple(sorted((root / "trees").glob("*/*.json")))
    return RunFiles(
        kind=kind,
        root=root,
        settings=settings,
        summary=_object(root / "summary.json"),
        rows=rows,
        trees=trees,
    )


def read_trees(paths: tuple[Path, ...], root: Path) -> dict[str, StoredTree]:
    """Stored trees by their path below `root`.

    Raises:
        StoreError, SchemaError: a file is missing or damaged.
    """
    return {str(path.relative_to(root)): load_stored_tree(path) for path in paths}


def _object(path: Path) -> dict[str, Any] | None:
    data = read_if_present(path)
    if data is None:
        return None
    value = loads(data, where=str(path))
    if not isinstance(value, dict):
        raise SchemaError(f"{path}: not a JSON object")
    return value


def _lines(path: Path) -> tuple[dict[str, Any], ...]:
    """Whole lines only: a run may be writing the last one right now."""
    whole = (read_if_present(path) or b"").split(b"\n")[:-1]
    return tuple(loads(line, where=f"{path}, line {n}") for n, line in enumerate(whole, start=1))
