"""Folders copied, stored and removed whole, and never past their own edge."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from focus.agent.directory_workspace import copy_tree
from focus.errors import EnvError
from focus.records.strict_json import Fields

__all__ = ("copy_folder", "folder_to_plain", "new_folder", "plain_to_folder", "remove_folder")


def new_folder(scratch: str | os.PathLike[str] | None) -> Path:
    """An empty folder below `scratch`; None is the system's temporary folder."""
    return Path(tempfile.mkdtemp(prefix="focus-episode-", dir=scratch)).resolve()


def copy_folder(source: Path, target: Path) -> None:
    """Copy what is below `source` into the folder `target`; blocks are shared where possible.

    A link to a place inside leads to the same place inside the copy.

    Raises:
        EnvError: a link leads outside, so two copies would share what it names; or there is
            a pipe, socket or device, which has no copy.
        OSError: a file cannot be read or written.
    """
    source = source.resolve()
    links = dict(_links(source))
    copy_tree(source, target)
    for path, inside in links.items():
        link = target / path
        link.unlink()
        link.symlink_to(inside)


def remove_folder(folder: Path) -> None:
    """Remove a folder, folders that forbid it included; one that is gone is no error."""
    if not folder.exists():
        return
    for root, _, _ in os.walk(folder):
        os.chmod(root, stat.S_IRWXU)
        for entry in os.scandir(root):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, stat.S_IRWXU)
    shutil.rmtree(folder)


def folder_to_plain(folder: Path, *, most_bytes: int) -> dict[str, Any]:
    """All that is in a folder as JSON: folders, files with mode and time, links.

    Raises:
        EnvError: the files hold more than `most_bytes`, or as in `copy_folder`.
    """
    folder = folder.resolve()
    links = dict(_links(folder))
    folders, files, size = [], [], 0
    for path in _below(folder):
        name, status = path.relative_to(folder).as_posix(), path.lstat()
        if stat.S_ISDIR(status.st_mode):
            folders.append([name, stat.S_IMODE(status.st_mode)])
        elif stat.S_ISREG(status.st_mode):
            size += status.st_size
            if size > most_bytes:
                raise EnvError(
                    f"{folder} holds more than {most_bytes} bytes, too much for a snapshot; give "
                    "DirectoryEnv more (most_bytes=...), or collect without a journal"
                )
            data = b64encode(path.read_bytes()).decode("ascii")
            files.append([name, stat.S_IMODE(status.st_mode), status.st_mtime_ns, data])
    return {"folders": folders, "files": files, "links": sorted(map(list, links.items()))}


def plain_to_folder(snapshot: Mapping[str, Any], folder: Path) -> None:
    """Inverse of `folder_to_plain`, into an empty folder.

    Raises:
        SchemaError: another shape.
        EnvError: a path or a link leads outside.
    """
    fields = Fields(dict(snapshot), where="folder")
    folders, files, links = fields.items("folders"), fields.items("files"), fields.items("links")
    fields.done()
    for name, _ in folders:
        _inside(folder, name).mkdir(parents=True)
    for name, mode, time_ns, data in files:
        path = _inside(folder, name)
        path.write_bytes(b64decode(data, validate=True))
        path.chmod(mode)
        os.utime(path, ns=(time_ns, time_ns))
    for name, inside in links:
        _inside(folder, name).symlink_to(inside)
    for _ in _links(folder.resolve()):  # refuses those that lead outside
        pass
    for name, mode in reversed(folders):
        _inside(folder, name).chmod(mode)


def _inside(folder: Path, name: str) -> Path:
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise EnvError(f"a snapshot names {name!r}, which is not inside its folder")
    return folder / name


def _links(folder: Path) -> Iterator[tuple[str, str]]:
    """Links by path, each with a relative way to where it leads; refuses what has no copy."""
    for path in _below(folder):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            yield path.relative_to(folder).as_posix(), _way_inside(path, folder)
        elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise EnvError(f"{path} is a pipe, a socket or a device, of which there is no copy")


def _way_inside(link: Path, folder: Path) -> str:
    target = os.path.normpath(os.path.join(link.parent, os.readlink(link)))
    real = os.path.realpath(link)
    for place in (target, real):
        if place != str(folder) and not place.startswith(f"{folder}{os.sep}"):
            raise EnvError(f"{link} leads to {real}, outside {folder}: branches would share it")
    return os.path.relpath(target, link.parent)


def _below(folder: Path) -> Iterator[Path]:
    """Everything below a folder, folders before what is in them, by name; no link is followed."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path))
