"""What may lie in a snapshot's folder, and what does."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from focus.critic.manifest import MANIFEST
from focus.critic.snapshot import FileFacts, Snapshot
from focus.errors import SchemaError, StoreError
from focus.records.files import is_disk_fault, store_error

__all__ = ("check_bytes", "check_inert", "disk_faults", "measured")

_INERT = {".json", ".jsonl", ".safetensors", ".txt", ".model", ".jinja", ".md"}
"""Kinds of files that a snapshot may hold: none of them is code or a pickle."""


def measured(folder: Path) -> dict[str, FileFacts]:
    """Length and hash of every file below `folder`, the manifest excepted."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise SchemaError(f"{path}: not a plain file; a snapshot holds its own bytes only")
        if path.is_file() and name != MANIFEST:
            try:
                with open(path, "rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError as error:
                raise store_error(path, "read it", error) from error
            found[name] = FileFacts(digest, path.stat().st_size)
    return found


def check_bytes(snapshot: Snapshot) -> None:
    """Every file as it was published, none missing and none besides.

    Raises:
        StoreError: a file is missing or cannot be read.
        SchemaError: a file is cut, changed, foreign or no plain file.
    """
    found = measured(snapshot.folder)
    for name in sorted(found.keys() | snapshot.files.keys()):
        path = snapshot.folder / name
        if name not in found:
            raise StoreError(f"{path}: missing; restore {snapshot.version} or publish it again")
        if name not in snapshot.files:
            raise SchemaError(f"{path}: not in the manifest of {snapshot.version}; remove it")
        if found[name] != snapshot.files[name]:
            raise SchemaError(
                f"{path}: {found[name].bytes} bytes that are not those published "
                f"({snapshot.files[name].bytes} bytes); restore {snapshot.version}"
            )


def check_inert(model: Path) -> None:
    """Refuse a model that is none, and files that somebody could run or unpickle."""
    files = [path for path in model.rglob("*") if path.is_file()]
    for path in files:
        if path.suffix not in _INERT:
            raise SchemaError(
                f"{path}: a snapshot holds safetensors, JSON and text only, no {path.suffix!r} "
                "(convert the weights with save_pretrained)"
            )
    if not any(path.suffix == ".safetensors" for path in files):
        raise StoreError(f"{model}: holds no weights (*.safetensors)")


@contextlib.contextmanager
def disk_faults(path: Path) -> Iterator[None]:
    """Faults of the disk while a snapshot is written, as ours."""
    try:
        yield
    except BaseException as error:
        if is_disk_fault(error):
            raise StoreError(f"{path}: cannot write the snapshot: {error}. Free space.") from error
        raise
