"""What the page of `focus view` shows, read from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from focus.cli.runs import RunFiles, kind_of, read_run
from focus.cli.view_pieces import pieces_of
from focus.errors import ConfigError
from focus.records.tree_store import load_stored_tree
from focus.viz.web.run_data import run_data, tree_row
from focus.viz.web.tree_data import Piece, tree_data

__all__ = ("ViewSource",)

Advance = Callable[[int, int], None]


class ViewSource:
    """One run, or two to compare; rows of trees that did not change are kept.

    Args:
        paths: folders of runs, or tree files.
        piece: decodes single tokens; None takes each run's own tokenizer.
        most: trees listed per run, the latest; None is all.
        advance: told how many of how many trees are read.

    Raises:
        StoreError: a path holds nothing that can be shown.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        piece: Piece | None = None,
        most: int | None = None,
        advance: Advance = lambda done, total: None,
    ) -> None:
        self._paths = list(paths)
        self._most = most
        self._advance = advance
        self._kept: dict[Path, tuple[object, dict[str, Any]]] = {}
        self._files: dict[str, tuple[Path, Piece | None]] = {}
        self._pieces = [piece or pieces_of(_files_at(path)) for path in paths]

    def run(self) -> dict[str, Any]:
        """Everything but the bodies of the trees, as it stands on disk now.

        Raises:
            StoreError, SchemaError: a file is missing or damaged.
        """
        names = _names(self._paths)
        runs = [self._one(position, name) for position, name in enumerate(names)]
        return {"runs": runs}

    def tree(self, key: str) -> dict[str, Any]:
        """One tree that `run` listed.

        Raises:
            ConfigError: it listed no such tree.
            StoreError, SchemaError: its file is missing or damaged.
        """
        if key not in self._files:
            raise ConfigError(f"no tree {key!r} in this view")
        path, piece = self._files[key]
        return tree_data(load_stored_tree(path), key=key, piece=piece)

    def trees(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """All that `run` listed."""
        for done, key in enumerate(self._files):
            self._advance(done, len(self._files))
            yield key, self.tree(key)

    def _one(self, position: int, name: str) -> dict[str, Any]:
        files = _files_at(self._paths[position])
        first = 0 if self._most is None else max(0, len(files.trees) - self._most)
        rows = []
        for path in files.trees[first:]:
            key = f"{position}/{path.relative_to(files.root)}"
            self._files[key] = (path, self._pieces[position])
            rows.append(self._row(path, key))
            self._advance(len(rows), len(files.trees) - first)
        return run_data(
            name=name,
            kind=files.kind,
            settings=files.settings,
            rows=files.rows,
            summary=files.summary,
            trees=rows,
            left_out=first,
        )

    def _row(self, path: Path, key: str) -> dict[str, Any]:
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        if path not in self._kept or self._kept[path][0] != stamp:
            self._kept[path] = (stamp, tree_row(load_stored_tree(path), key=key))
        return self._kept[path][1]


def _files_at(path: Path) -> RunFiles:
    if kind_of(path) == "tree":
        return RunFiles(
            kind="tree", root=path.parent, settings={}, summary=None, rows=(), trees=(path,)
        )
    found = read_run(path)
    # A row may name a tree whose file another process is about to write.
    return replace(found, trees=tuple(tree for tree in found.trees if tree.exists()))


def _names(paths: Sequence[Path]) -> list[str]:
    """Short names, longer where two would be the same.

    >>> _names([Path("runs/a"), Path("runs/b")]), _names([Path("x/a"), Path("y/a")])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    absolute = [path.absolute() for path in paths]
    for parts in range(1, max(len(path.parts) for path in absolute) + 1):
        names = ["/".join(path.parts[-parts:]) for path in absolute]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} ({place})" for place, path in enumerate(absolute, start=1)]
