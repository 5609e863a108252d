"""A folder of published critics: immutable versions, and one pointer to the current one.

    store/
      store.json                        schema; makes the folder a store
      snapshots/critic-0003/
        manifest.json                   facts, and SHA-256 and length of every other file
        model/                          config, safetensors, tokenizer; nothing that runs
        records.txt                     ids of the records it was trained on
        probes.jsonl                    held contexts with the trained model's values
      current.json                      the version that collectors take

A version is filled under a temporary name, synced to the disk and renamed in one call,
so it is there whole or not at all. The pointer is one small file that is replaced in one
call and holds the manifest's hash. Publishers of one host take turns by a file lock that
the system releases when they die; what a dead one left is swept by the next.

    store = SnapshotStore("critics")
    snapshot = store.publish(model.save, facts)         # -> critic-0001, current
    snapshot = store.current()                          # None before the first one
    if snapshot is not None and snapshot.verdict.steering:
        snapshot = store.load(snapshot.version)         # every byte checked
        model = load_value_model(snapshot)              # focus.critic.loading
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from focus.critic.manifest import MANIFEST, decode_manifest, encode_manifest
from focus.critic.pointer import Named, Pointer
from focus.critic.snapshot import (
    MODEL,
    PROBES,
    RECORDS,
    FileFacts,
    Probe,
    Snapshot,
    SnapshotFacts,
    encode_probes,
)
from focus.critic.snapshot_files import check_bytes, check_inert, disk_faults, measured
from focus.critic.workplace import Workplace, is_ours
from focus.errors import ConfigError, SchemaError, StoreError
from focus.records.codec import opened
from focus.records.files import (
    OS_FILES,
    TEMPORARY_SUFFIX,
    Files,
    listed,
    read_if_present,
    read_whole,
    store_error,
    sync_tree,
    write_whole,
)
from focus.records.strict_json import dumps, loads

__all__ = ("Damage", "SnapshotStore")

STORE_SCHEMA = "focus.snapshots/1"

_STORE = "store.json"
_CURRENT = "current.json"
_SNAPSHOTS = "snapshots"
_VERSION = re.compile(r"critic-(\d{4,})")


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that `SnapshotStore.verify` found.

    Attributes:
        version: the snapshot, or None for the store as a whole.
        reason: the error's text.
    """

    version: str | None
    reason: str


class SnapshotStore:
    """Published critics in a folder. Nothing is touched before the first publication.

    Calls block; an event loop runs them in a worker thread. Many processes may read while
    others publish.

    Args:
        path: the folder; made, with its parents, when needed.
        files: the file calls, replaced by tests of failing disks.
    """

    def __init__(self, path: str | os.PathLike[str], *, files: Files = OS_FILES) -> None:
        self.path: Path = Path(os.path.abspath(path))
        self._files = files
        self._snapshots = self.path / _SNAPSHOTS
        self._workplace = Workplace(self._snapshots, files)
        self._pointer = Pointer(self.path / _CURRENT, files)

    def __repr__(self) -> str:
        return f"SnapshotStore({str(self.path)!r})"

    def create(self) -> None:
        """Make the folder a store; repeating it changes nothing.

        Raises:
            StoreError: the folder holds something else, or cannot be written.
        """
        if self._exists():
            return
        try:
            self._files.make_directory(self._snapshots)
            # Two creators write the same bytes, so it does not matter whose stay.
            marker = dumps({"schema": STORE_SCHEMA}, what="store") + b"\n"
            path = self.path / _STORE
            write_whole(path, marker, overwrite=True, fsync=True, files=self._files)
        except OSError as error:
            raise _as_store_error(self.path, "make a store", error) from error

    def publish(
        self,
        fill: Callable[[Path], None],
        facts: SnapshotFacts,
        *,
        record_ids: Sequence[str] = (),
        probes: Sequence[Probe] = (),
        make_current: bool = True,
    ) -> Snapshot:
        """Add a version under the next free number.

        A second publication of the same origin returns the first one's snapshot and
        writes no new one, so that a publisher that was killed may simply repeat itself.

        Args:
            fill: writes the model into the empty folder it is given.
            facts: what is known of it; its `records` must be those of `record_ids`.
            record_ids: of the training records (`focus.critic.snapshot.record_ids`).
            probes: held contexts with the values of the model in memory.
            make_current: collectors take this version from now on.

        Raises:
            StoreError: the folder is no store, the parent is missing, the model has no
                safetensors or a file that could run, or a file call failed. No part of the
                version is visible, or all of it is and the same call makes it current.
            ConfigError: `facts.records` names other records.
        """
        listing = "".join(f"{name}\n" for name in sorted(record_ids)).encode()
        if (len(record_ids), hashlib.sha256(listing).hexdigest()) != (
            facts.records.count,
            facts.records.digest,
        ):
            raise ConfigError(f"{facts.origin}: facts.records are not those of record_ids")
        self.create()
        with self._workplace.incoming() as folder:
            model = folder / MODEL
            with disk_faults(self.path):
                model.mkdir()
                fill(model)
            check_inert(model)
            with disk_faults(self.path):
                (folder / RECORDS).write_bytes(listing)
                (folder / PROBES).write_bytes(encode_probes(probes))
                files = measured(folder)
                sync_tree(folder, files=self._files)
            with self._workplace.locked():
                return self._name(folder, facts, files, make_current=make_current)

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Inside nobody publishes, so the newest version and the pointer belong together.

        Raises:
            StoreError: the store cannot be written.
        """
        with self._workplace.locked():
            yield

    def current(self) -> Snapshot | None:
        """The version that collectors take; None before the first one.

        The manifest is checked, the model is not: `load` does that.

        Raises:
            StoreError: the folder is no store, or the pointer names a missing version.
            SchemaError: pointer or manifest is damaged, or they contradict each other.
        """
        if not self._exists():
            return None
        named = self._pointer.read()
        if named is None:
            return None
        version, path = named.version, self._pointer.path
        try:
            snapshot, found = self._manifest(version)
        except StoreError as error:
            raise type(error)(f"{path} points to {version!r}: {error}") from error
        if found != named.manifest_sha256:
            raise SchemaError(f"{path}: {version} has another manifest than when it was named")
        return snapshot

    def versions(self) -> tuple[str, ...]:
        """Published versions, oldest first.

        Raises:
            StoreError: the folder is no store, or cannot be read.
        """
        if not self._exists():
            return ()
        names = [name for name in listed(self._snapshots) if _number(name) is not None]
        return tuple(sorted(names, key=lambda name: _number(name) or 0))

    def manifest(self, version: str) -> Snapshot:
        """What is known of a version, without reading its model.

        Raises:
            StoreError: there is no such version.
            SchemaError: its manifest is damaged.
        """
        return self._manifest(version)[0]

    def load(self, version: str) -> Snapshot:
        """A version whose every byte was checked; nothing of it is run.

        Raises:
            StoreError: there is no such version, or a file is missing.
            SchemaError: a file is cut, changed, foreign or no plain file.
        """
        snapshot = self.manifest(version)
        check_bytes(snapshot)
        check_inert(snapshot.model)
        return snapshot

    def point(self, version: str) -> Snapshot:
        """Make another published version the current one, e.g. to go back to an older one.

        Raises:
            StoreError: there is no such version, it is damaged, or the pointer cannot be
                written.
        """
        snapshot = self.load(version)
        with self._workplace.locked():
            self._point(snapshot)
        return snapshot

    def retire(self, *, keep: int) -> tuple[str, ...]:
        """Remove the oldest versions, but for the `keep` newest and the current one.

        Returns:
            What was removed. A reader that pinned one of them gets an error, so keep more
            than rounds are in flight.

        Raises:
            ConfigError: `keep` is below 1.
            StoreError: the folder is no store, or a version cannot be removed.
        """
        if keep < 1:
            raise ConfigError(f"a store keeps at least 1 version, got {keep}")
        if not self._exists():
            return ()
        with self._workplace.locked():
            current = self.current()
            spared = {*self.versions()[-keep:], current.version if current else ""}
            removed = tuple(name for name in self.versions() if name not in spared)
            for version in removed:
                self._workplace.remove(self._snapshots / version)
        return removed

    def verify(self) -> tuple[Damage, ...]:
        """Everything that is wrong with the store; empty when all is well.

        Raises:
            StoreError: the folder is no store, or cannot be read.
        """
        found = []
        for version in self.versions():
            try:
                self.load(version)
            except StoreError as error:
                found.append(Damage(version, str(error)))
        strangers = [
            name
            for name in (listed(self._snapshots) if self._exists() else ())
            if _number(name) is None and not is_ours(name)
        ]
        found += [
            Damage(None, f"{self._snapshots / name}: no snapshot; remove it") for name in strangers
        ]
        try:
            self.current()
        except StoreError as error:
            found.append(Damage(None, str(error)))
        return tuple(found)

    def _exists(self) -> bool:
        """Whether the folder is a store; an empty or missing folder may become one."""
        # Listed before the marker is read: whatever of a store is seen, its marker was first.
        names = listed(self.path) if self.path.exists() else []
        path = self.path / _STORE
        data = read_if_present(path)
        if data is not None:
            opened(loads(data, where=str(path)), schema=STORE_SCHEMA, where=str(path)).done()
            return True
        foreign = [n for n in names if n != _SNAPSHOTS and not n.endswith(TEMPORARY_SUFFIX)]
        if foreign:
            raise StoreError(
                f"{self.path} holds {foreign[0]!r} and no {_STORE}, so it is no store of "
                "critics; choose another folder"
            )
        return False

    def _manifest(self, version: str) -> tuple[Snapshot, str]:
        """The snapshot and the hash of its manifest."""
        if _number(version) is None:
            raise StoreError(f"{self.path}: {version!r} is not a version, e.g. critic-0001")
        folder = self._snapshots / version
        if not folder.is_dir():
            raise StoreError(
                f"{self.path}: there is no version {version!r}; known: "
                f"{', '.join(self.versions()) or 'none'}"
            )
        data = read_whole(folder / MANIFEST)
        snapshot = decode_manifest(data, folder=folder)
        if snapshot.version != version:
            raise SchemaError(f"{folder / MANIFEST}: is that of {snapshot.version!r}")
        return snapshot, hashlib.sha256(data).hexdigest()

    def _name(
        self,
        folder: Path,
        facts: SnapshotFacts,
        files: dict[str, FileFacts],
        *,
        make_current: bool,
    ) -> Snapshot:
        """Write the manifest, then give the folder the next version's name."""
        known = [self.manifest(version) for version in self.versions()]
        snapshot = next((s for s in known if s.facts.origin == facts.origin), None)
        if snapshot is None:
            if facts.parent is not None and facts.parent not in [s.version for s in known]:
                raise StoreError(f"{self.path}: the parent {facts.parent!r} is not published here")
            numbers = [_number(s.version) or 0 for s in known]
            version = f"critic-{max(numbers, default=0) + 1:04d}"
            snapshot = Snapshot(
                version=version,
                folder=self._snapshots / version,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                facts=facts,
                files=files,
            )
            self._rename(folder, snapshot)
        if make_current:
            self._point(snapshot)
        return snapshot

    def _rename(self, folder: Path, snapshot: Snapshot) -> None:
        write_whole(
            folder / MANIFEST,
            encode_manifest(snapshot),
            overwrite=False,
            fsync=True,
            files=self._files,
        )
        try:
            # Fails where a version of that name has files: a snapshot is never replaced.
            self._files.replace(folder, snapshot.folder)
        except OSError as error:
            raise _as_store_error(snapshot.folder, "publish it", error) from error
        try:
            self._files.sync_directory(self._snapshots)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._files.replace(snapshot.folder, folder)
            raise store_error(snapshot.folder, "publish it", error) from error

    def _point(self, snapshot: Snapshot) -> None:
        digest = hashlib.sha256(read_whole(snapshot.folder / MANIFEST)).hexdigest()
        self._pointer.write(Named(snapshot.version, digest))


def _number(name: str) -> int | None:
    match = _VERSION.fullmatch(name)
    number = int(match[1]) if match else 0
    return number if number and name == f"critic-{number:04d}" else None


def _as_store_error(path: Path, doing: str, error: OSError) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        return StoreError(f"{path}: another publisher took that name; publish again")
    return store_error(path, doing, error)
