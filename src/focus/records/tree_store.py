"""One JSON file per tree: enough to show it, credit it again and derive its records.

The file names its schema and carries the SHA-256 of its body, so that a changed or cut
file is refused instead of read. Payloads (environment states, workspaces) are not
stored: a loaded tree can be studied, not continued.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from focus.credit.base import Credit, Target
from focus.errors import CreditError, Failure, RecordError, SchemaError
from focus.records.codec import opened
from focus.records.files import OS_FILES, Files, read_whole, store_error, write_whole
from focus.records.strict_json import Fields, dumps, loads
from focus.records.tree_codec import decode_tree, encode_tree
from focus.tree import NodeId, Tree

__all__ = ("TREE_SCHEMA", "StoredTree", "load_stored_tree", "load_tree", "save_tree")

TREE_SCHEMA = "focus.tree/1"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class StoredTree:
    """A tree and what was stored beside it.

    Attributes:
        tree: without payloads.
        texts: decoded text of a node's incoming edge (of the prompt, for the root).
        credit: what an estimator gave, if it was stored.
        failures: expansions and predictions that failed.
    """

    tree: Tree[None]
    texts: Mapping[NodeId, str] = field(default_factory=dict)
    credit: Credit | None = None
    failures: tuple[Failure, ...] = ()


def save_tree(
    tree: Tree[Any],
    path: str | os.PathLike[str],
    *,
    texts: Mapping[NodeId, str] | None = None,
    credit: Credit | None = None,
    failures: Sequence[Failure] = (),
    files: Files = OS_FILES,
) -> None:
    """Write a settled tree, replacing an older file; whole or not at all.

    Args:
        tree: the tree; its payloads are left out.
        path: the file; missing directories are made.
        texts: decoded text by node, for readers without the tokenizer.
        credit: stored beside the tree, so that a view can show advantages.
        failures: why some tips are unfinished.
        files: the file calls.

    Raises:
        RecordError: label, metadata or a text cannot be stored as JSON.
        StoreError: the file cannot be written.

    >>> import tempfile
    >>> from focus.testing.trees import build_tree, end, fork
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "tree.json")
    ...     save_tree(build_tree(fork(0.5, end(1.0))), path)
    ...     load_tree(path)
    Tree(problem='drawn', 2 nodes, 1 leaves)
    """
    target = Path(path)
    body = {
        "tree": encode_tree(tree, texts=texts),
        "credit": None if credit is None else _encode_credit(credit, tree),
        "failures": [_encode_failure(failure) for failure in failures],
    }
    stored = dumps(body, what=f"tree of problem {tree.header.problem.id!r}")
    head = f'{{"schema":"{TREE_SCHEMA}","sha256":"{hashlib.sha256(stored).hexdigest()}","body":'
    data = head.encode("ascii") + stored + b"}\n"
    try:
        files.make_directory(target.parent)
    except OSError as error:
        raise store_error(target.parent, "make the directory", error) from error
    write_whole(target, data, overwrite=True, files=files)


def load_tree(path: str | os.PathLike[str]) -> Tree[None]:
    """The tree of a file that `save_tree` wrote.

    Raises:
        StoreError: the file is missing or unreadable.
        SchemaError: written by another version, changed or cut.
    """
    return load_stored_tree(path).tree


def load_stored_tree(path: str | os.PathLike[str]) -> StoredTree:
    """The tree of a file with the texts, credit and failures stored beside it.

    Raises:
        StoreError: the file is missing or unreadable.
        SchemaError: written by another version, changed or cut.
    """
    where = os.fspath(path)
    fields = opened(loads(read_whole(Path(path)), where=where), schema=TREE_SCHEMA, where=where)
    digest, body = fields.text("sha256"), fields.object("body")
    fields.done()
    # Of the parsed values, so that a file laid out anew by another tool stays valid.
    if hashlib.sha256(dumps(body, what=where)).hexdigest() != digest:
        raise SchemaError(f"{where}: its content does not match its own SHA-256")
    return _decode_body(Fields(body, where=where))


def _decode_body(fields: Fields) -> StoredTree:
    tree, texts = decode_tree(fields.raw("tree"), where=f"{fields.where}: tree")
    credit = fields.optional_fields("credit")
    stored = StoredTree(
        tree=tree,
        texts=texts,
        credit=None if credit is None else _decode_credit(credit),
        failures=tuple(
            _decode_failure(Fields(item, where=f"{fields.where}: failures"))
            for item in fields.items("failures")
        ),
    )
    fields.done()
    return stored


def _encode_credit(credit: Credit, tree: Tree[Any]) -> dict[str, Any]:
    named = {*credit.advantages, *credit.targets, *credit.values, *credit.diagnostics}
    strangers = sorted(node for node in named if not 0 <= node < len(tree))
    if strangers:
        raise RecordError(f"{credit.estimator} names nodes {strangers} of a tree of {len(tree)}")
    targets = {
        str(node): {"value": target.value, "count": target.count}
        for node, target in credit.targets.items()
    }
    return {
        "estimator": credit.estimator,
        "advantages": {str(node): number for node, number in credit.advantages.items()},
        "targets": targets,
        "values": {str(node): number for node, number in credit.values.items()},
        "diagnostics": {str(node): dict(named) for node, named in credit.diagnostics.items()},
    }


def _decode_credit(fields: Fields) -> Credit:
    diagnostics = fields.fields("diagnostics")
    try:
        credit = Credit(
            estimator=fields.text("estimator"),
            advantages=_by_node(fields.numbers_by_name("advantages"), fields.where),
            targets=_decode_targets(fields.fields("targets")),
            values=_by_node(fields.numbers_by_name("values"), fields.where),
            diagnostics=_by_node(
                {name: diagnostics.numbers_by_name(name) for name in diagnostics.names()},
                fields.where,
            ),
        )
    except CreditError as error:
        raise SchemaError(f"{fields.where}: {error}") from error
    fields.done()
    return credit


def _decode_targets(fields: Fields) -> dict[NodeId, Target]:
    targets = {}
    for name in fields.names():
        target = fields.fields(name)
        targets[name] = Target(target.number("value"), target.integer("count", least=1))
        target.done()
    return _by_node(targets, fields.where)


def _by_node(table: Mapping[str, T], where: str) -> dict[NodeId, T]:
    """JSON keys are text; those of a node read as its number and nothing else."""
    try:
        by_node = {int(name): item for name, item in table.items()}
    except ValueError as error:
        raise SchemaError(f"{where}: {error}") from error
    if [str(node) for node in by_node] != list(table):
        raise SchemaError(f"{where}: keys {sorted(table)} are not node numbers")
    return by_node


def _encode_failure(failure: Failure) -> dict[str, Any]:
    return {
        "stage": failure.stage,
        "expansion": failure.expansion,
        "node": failure.node,
        "kind": failure.kind,
        "message": failure.message,
    }


def _decode_failure(fields: Fields) -> Failure:
    failure = Failure(
        stage=fields.text("stage"),
        expansion=fields.integer("expansion", least=-1),
        node=fields.integer("node"),
        kind=fields.text("kind"),
        message=fields.text("message"),
    )
    fields.done()
    return failure
