"""S7: few dependencies, all pinned where FOCUS is tested, and an import that touches nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import focus
from focus.errors import ConfigError
from focus.promises.base import Measured, Stand

__all__ = ("dependencies", "import_events", "pins", "supplied")

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_IMPORTS = (
    "focus",
    "focus.integrations.slime",
    "focus.cli.main",
    "focus.records",
    "focus.policies.http",
)

_WATCHED = """
import importlib, json, os, sys
seen = []
def hear(event, arguments):
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (
        os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    network = event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto")
    if writes or network or event.startswith(("subprocess.", "os.system", "os.fork", "urllib.")):
        seen.append(event + " " + str(arguments[:1])[:100])
sys.dont_write_bytecode = True
sys.addaudithook(hear)
importlib.import_module(sys.argv[1])
print(json.dumps(seen))
"""


def supplied(stand: Stand) -> Measured:
    """Direct dependencies of the package and of its extras against the committed pins.

    Counts installed packages without a pin, installed versions that are not the pinned ones, and
    connections, processes and written files at import. What is known of their weaknesses is
    not looked up: that needs a network.
    """
    root = _repository()
    pinned = pins(root / "constraints.txt")
    runtime, extras = dependencies(root / "pyproject.toml")
    installed = {name: found for name in runtime | extras if (found := _installed(name))}
    unpinned = sorted(installed.keys() - pinned.keys())
    drifted = sorted(n for n, found in installed.items() if pinned.get(n, found) != found)
    events = {name: heard for name in _IMPORTS if (heard := import_events(name))}
    stand.progress(1, 1)
    detail = {
        "runtime": sorted(runtime),
        "with_extras": len(runtime | extras),
        "not_installed": sorted((runtime | extras) - installed.keys()),
        "unpinned": unpinned,
        "not_the_pinned_version": drifted,
        "at_import": events,
    }
    trials = len(installed) + len(_IMPORTS)
    return Measured(len(unpinned) + len(drifted) + len(events), trials, detail)


def dependencies(project: Path) -> tuple[set[str], set[str]]:
    """Names of what a pyproject.toml needs, and of what its extras add."""
    table = tomllib.loads(project.read_text("utf-8"))["project"]
    extras = [line for lines in table["optional-dependencies"].values() for line in lines]
    own = _canonical(table["name"])
    return {_name(line) for line in table["dependencies"]}, {_name(line) for line in extras} - {own}


def _name(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match is not None, "a requirement begins with a name"
    return _canonical(match[0])


def pins(path: Path) -> dict[str, str]:
    """Version by package of a constraints file."""
    lines = [line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line]
    return {_canonical(name): number for name, number in pairs}


def import_events(module: str) -> list[str]:
    """What importing a module does besides reading, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED, module], capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(done.stdout)
    return found


def _repository() -> Path:
    root = Path(focus.__file__).parents[2]
    if not (root / "constraints.txt").is_file():
        raise ConfigError(f"{root}: no constraints.txt; pins are kept in FOCUS's repository only")
    return root


def _installed(name: str) -> str | None:
    """The version here, without its build; None for an extra that is not installed."""
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return None


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
