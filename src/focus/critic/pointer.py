"""The one small file that says which version collectors take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from focus.records.codec import opened
from focus.records.files import Files, read_if_present, write_whole
from focus.records.strict_json import dumps, loads

__all__ = ("Named", "Pointer")

POINTER_SCHEMA = "focus.current/1"


@dataclass(frozen=True, slots=True)
class Named:
    """What a pointer says.

    Attributes:
        version: the current one.
        manifest_sha256: of its manifest, when it was named.
    """

    version: str
    manifest_sha256: str


class Pointer:
    """Replaced in one call, so it names one version or the other.

    Args:
        path: the file.
        files: the file calls, replaced by tests of failing disks.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files

    def read(self) -> Named | None:
        """What it names; None before the first version.

        Raises:
            StoreError: it cannot be read.
            SchemaError: it is damaged.
        """
        data = read_if_present(self.path)
        if data is None:
            return None
        where = str(self.path)
        fields = opened(loads(data, where=where), schema=POINTER_SCHEMA, where=where)
        named = Named(fields.text("version"), fields.text("manifest_sha256"))
        fields.done()
        return named

    def write(self, named: Named) -> None:
        """Name another version.

        Raises:
            StoreError: it cannot be written.
        """
        plain = {
            "schema": POINTER_SCHEMA,
            "version": named.version,
            "manifest_sha256": named.manifest_sha256,
        }
        data = dumps(plain, what="pointer") + b"\n"
        write_whole(self.path, data, overwrite=True, fsync=True, files=self._files)
