"""The folder of a collection: what was collected for each row of a file, and how it went.

    collect.json              settings, versions, run: written first, compared on a rerun
    rows/NAME.json            one per collected row, written last: the row is whole if it exists
    trees/NAME.json           the tree (`focus show` draws it)
    actor/NAME.jsonl          samples for the policy's trainer
    critic/                   targets for the critic's trainer (a JsonlDirectory)
    journal/NAME/             finished edges of a row that was not finished; gone once it is
    index.jsonl               every row of the file: line, id, status, files, outcome
    summary.json              totals

NAME is a hash of the row's id, prompt and label, so data never chooses a path.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from focus.agent import Journal
from focus.collect import Collection, Ledger
from focus.errors import SchemaError, StoreError
from focus.problem import Problem
from focus.records import JsonlDirectory, encode_sample, save_tree
from focus.records.files import (
    holds_only,
    read_if_present,
    read_whole,
    store_error,
    write_whole,
)
from focus.records.jsonl import PromptFile
from focus.records.records import RecordKey
from focus.records.strict_json import dumps, loads
from focus.tree import NodeId

__all__ = ("CollectedRow", "CollectionFolder")

SCHEMA = "focus.collect/1"

_FOLDERS = ("rows", "trees", "actor")
"""Made first; a collection has begun once its collect.json stands."""


@dataclass(frozen=True, kw_only=True)
class CollectedRow:
    """What one row gave.

    Attributes:
        name: of its files.
        nodes, leaves: size of its tree.
        right, wrong: finished leaves with an outcome above zero, and the others.
        root_rollouts, root_success: rollouts from the root and their mean outcome.
        actor_records, critic_records: samples and targets written.
        failures: expansions and predictions that failed (with ``allow_partial`` only).
        ledger: its books.
    """

    name: str
    nodes: int
    leaves: int
    right: int
    wrong: int
    root_rollouts: int
    root_success: float | None
    actor_records: int
    critic_records: int
    failures: int
    ledger: Ledger

    @classmethod
    def of(cls, name: str, collection: Collection) -> CollectedRow:
        """Figures of one collection."""
        tree = collection.tree
        outcomes = [tree.outcome(node) for node in tree.terminals()]
        right = sum(1 for outcome in outcomes if outcome > 0)
        roots = collection.root_outcomes
        return cls(
            name=name,
            nodes=len(tree),
            leaves=len(tree.leaves()),
            right=right,
            wrong=len(outcomes) - right,
            root_rollouts=len(roots),
            root_success=sum(roots) / len(roots) if roots else None,
            actor_records=len(collection.actor),
            critic_records=len(collection.critic),
            failures=len(collection.failures),
            ledger=collection.ledger,
        )

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    def entry(self) -> dict[str, Any]:
        """Its part of an index line."""
        plain = asdict(self)
        name, ledger = plain.pop("name"), plain.pop("ledger")
        return {
            "tree": f"trees/{name}.json",
            "actor": f"actor/{name}.jsonl",
            "tokens": ledger["tokens_generated"],
            **plain,
        }


class CollectionFolder:
    """Paths and whole-file writes of one collection."""

    def __init__(self, root: Path, run: str) -> None:
        self.root = root
        self.run = run
        self._sink = JsonlDirectory(root / "critic", run=run)

    @classmethod
    def open(
        cls, root: Path, settings: Mapping[str, Any], *, versions: Mapping[str, str]
    ) -> CollectionFolder:
        """A new folder, or one that was started with equal settings.

        Raises:
            StoreError: it belongs to something else, or cannot be written.
            SchemaError: its collect.json is damaged.
        """
        run = _run_name(settings)
        known = _known_settings(root)
        if known is not None:
            _refuse_other(root, known, settings)
            return cls(root, run)
        _make(root)
        folder = cls(root, run)
        folder._write_json(
            "collect.json",
            {"schema": SCHEMA, "run": run, "settings": dict(settings), "versions": dict(versions)},
        )
        return folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from collecting into this folder.

        Raises:
            StoreError: another process does.
        """
        with open(self.root / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(f"{self.root}: another process is collecting there") from error
            yield

    @staticmethod
    def name_of(problem: Problem) -> str:
        """Name of a row's files."""
        text = dumps([problem.id, problem.key], what="problem id")
        return hashlib.sha256(text).hexdigest()[:32]

    def row(self, problem: Problem) -> CollectedRow | None:
        """What was collected for a row; None if it was not, or not to the end.

        Raises:
            SchemaError: its file is damaged.
        """
        path = self.root / "rows" / f"{self.name_of(problem)}.json"
        data = read_if_present(path)
        if data is None:
            return None
        try:
            stored = loads(data, where=str(path))
            if stored.pop("schema") != SCHEMA:
                raise KeyError("schema")
            return CollectedRow(**{**stored, "ledger": Ledger(**stored["ledger"])})
        except (AttributeError, KeyError, TypeError) as error:
            raise SchemaError(f"{path} is damaged ({error}); delete it to collect again") from error

    def journal(self, problem: Problem) -> Journal:
        """Where a row's edges are kept until its tree is stored."""
        return Journal(self.root / "journal" / self.name_of(problem))

    def store(
        self, problem: Problem, collection: Collection, texts: Mapping[NodeId, str]
    ) -> CollectedRow:
        """Write everything of one row; the row's own file last, so that it vouches for the rest.

        Raises:
            StoreError: the disk refused; the row counts as not collected.
        """
        row = CollectedRow.of(self.name_of(problem), collection)
        save_tree(
            collection.tree,
            self.root / "trees" / f"{row.name}.json",
            texts=texts,
            credit=collection.credit,
            failures=collection.failures,
        )
        lines = [dumps(encode_sample(record), what=row.name) + b"\n" for record in collection.actor]
        write_whole(self.root / "actor" / f"{row.name}.jsonl", b"".join(lines), overwrite=True)
        self._store_targets(collection)
        self._write_json(f"rows/{row.name}.json", row.to_dict())
        return row

    def _store_targets(self, collection: Collection) -> None:
        """Replace targets of a run that was cut off before it wrote the row's own file."""
        target = self._sink.path / PromptFile.of(RecordKey.of(collection.tree)).name
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise store_error(target, "remove it", error) from error
        self._sink.write(collection.critic)

    def write_result(self, index: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
        """Replace index and summary."""
        lines = [dumps(dict(entry), what="index") + b"\n" for entry in index]
        write_whole(self.root / "index.jsonl", b"".join(lines), overwrite=True)
        self._write_json("summary.json", summary)

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        write_whole(self.root / name, dumps(dict(value), what=name) + b"\n", overwrite=True)


def _run_name(settings: Mapping[str, Any]) -> str:
    """A name for how trees are grown, whatever from.

    Seeds of requests come from it, so it does not depend on where files lie.
    """
    law = {name: value for name, value in settings.items() if name not in ("problems", "model")}
    return "collect-" + hashlib.sha256(dumps(law, what="settings")).hexdigest()[:12]


def _known_settings(root: Path) -> dict[str, Any] | None:
    """Settings of the collection that stands there; None where one may begin."""
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is a file; choose a folder for the collection")
    path = root / "collect.json"
    if path.exists():
        stored = loads(read_whole(path), where=str(path))
        if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
            raise SchemaError(f"{path}: not written by this version; choose another --out")
        return dict(stored["settings"])
    if root.is_dir() and not holds_only(root, _FOLDERS):
        what = "holds a training run" if (root / "ledger.sqlite").exists() else "is not empty"
        raise StoreError(f"{root} {what} and is no collection of FOCUS; choose another --out")
    return None


def _refuse_other(root: Path, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    names = sorted(known.keys() | wanted.keys())
    changed = [
        f"{name} was {known.get(name)!r} and is {wanted.get(name)!r}"
        for name in names
        if known.get(name) != wanted.get(name)
    ]
    if changed:
        raise StoreError(
            f"{root} holds another collection ({'; '.join(changed)}); choose another --out, "
            "or repeat the settings of its collect.json to continue it"
        )


def _make(root: Path) -> None:
    try:
        for name in _FOLDERS:
            (root / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(root, "make the folder", error) from error
