"""S2: what is loaded is data, whatever stands in it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus.errors import FocusError
from focus.promises.base import Measured, Stand
from focus.promises.sources import code_from_data, parsed, shipped
from focus.records import load_stored_tree, read_critic_records, read_problems
from focus.testing.records import GOLDEN
from focus.training.collection_folder import CollectionFolder
from focus.training.ledger import RunLedger
from focus.training.settings import PRESETS, load_settings

__all__ = ("PAYLOADS", "Watch", "loaders", "nothing_runs")

_FORBIDDEN = (
    "import",
    "exec",
    "compile",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.",
    "ctypes.",
    "pickle.",
    "marshal.",
)

# Protocol 0 of pickle, by hand: call os.system("touch exploded") when it is loaded.
_PICKLE = b"cos\nsystem\n(S'touch exploded'\ntR."
_YAML = b'!!python/object/apply:os.system ["touch exploded"]\n'
PAYLOADS: dict[str, bytes] = {
    "pickle": _PICKLE,
    "pickle, protocol 4": b"\x80\x04\x95" + (len(_PICKLE)).to_bytes(8, "little") + _PICKLE,
    "tagged YAML": _YAML,
    "YAML in JSON": b'{"schema": "!!python/name:os.system", "problem": "!!python/object:x"}\n',
    "class hint": b'{"__class__": "os.system", "py/object": "os.system", "args": ["true"]}\n',
    "Python": b"__import__('os').system('touch exploded')\n",
    "constructor": b'{"problem": {"__reduce__": ["os.system", ["true"]]}, "solution": "4"}\n',
    "archive": b"PK\x03\x04" + _PICKLE,
}


@dataclass
class Watch:
    """Notes forbidden audit events while it is on. A hook cannot be taken away again."""

    is_on: bool = False
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event.startswith(_FORBIDDEN):
            self.events.append(f"{event} {arguments[:1]}"[:200])

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False


def nothing_runs(stand: Stand) -> Measured:
    """A scan of the sources, then every loader, fed good files and then payloads, under watch."""
    files = shipped()
    found = [f"{path.name}: {x}" for path in files for x in code_from_data(parsed(path))]
    watch = Watch()
    tried = 0
    for name, load in loaders(stand.folder).items():
        for payload, data in PAYLOADS.items():
            with contextlib.suppress(FocusError):
                load(data)  # whatever it imports is imported now
            with watch.watching(), contextlib.suppress(FocusError):
                load(data)
            tried += 1
            found += [f"{name}, {payload}: {event}" for event in watch.events]
            watch.events.clear()
    found += [f"{path} was made" for path in stand.folder.rglob("exploded")]
    stand.progress(tried, tried)
    return Measured(len(found), len(files) + tried, {"loads": tried, "findings": found[:20]})


def loaders(folder: Path) -> dict[str, Callable[[bytes], object]]:
    """Everything that FOCUS reads from disk, given the bytes of a file."""

    def put(name: str, data: bytes) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    manifest = (GOLDEN / "directory" / "manifest.json").read_bytes()
    record = next((GOLDEN / "directory").glob("*.jsonl")).name

    def records(data: bytes) -> object:
        put("records/manifest.json", manifest)
        return list(read_critic_records(put(f"records/{record}", data).parent))

    def collection(data: bytes) -> object:
        return CollectionFolder.open(put("run/collect.json", data).parent, {}, versions={})

    return {
        "tree": lambda data: load_stored_tree(put("tree.json", data)),
        "manifest": lambda data: list(read_critic_records(put("m/manifest.json", data).parent)),
        "records": records,
        "problems": lambda data: read_problems(put("rows.jsonl", data)),
        "ledger": lambda data: RunLedger(put("ledger.sqlite", data)).close(),
        "settings": lambda data: load_settings(put("s.toml", data), base=PRESETS["smoke"]),
        "collection": collection,
    }
