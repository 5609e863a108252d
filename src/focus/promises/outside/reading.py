"""Exports and the server's books, as plain values with an index."""

from __future__ import annotations

import hashlib
import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ("Export", "Finding", "Findings", "Server", "bits", "read_exports", "read_server")


@dataclass(frozen=True)
class Finding:
    """One broken invariant."""

    invariant: str
    where: str
    detail: str


@dataclass
class Findings:
    """What was found, and how much was looked at."""

    found: list[Finding] = field(default_factory=list)

    def add(self, invariant: str, where: str, detail: str) -> None:
        self.found.append(Finding(invariant, where, detail))

    def check(self, holds: bool, invariant: str, where: str, detail: str) -> None:
        if not holds:
            self.add(invariant, where, detail)


def bits(value: Any) -> bytes:
    """All 64 bits of a float, so that -0.0 is not 0.0; other types keep their own marks.

    >>> bits(0.0) == bits(-0.0), bits(1) == bits(1.0)
    (False, False)
    """
    if type(value) is float:
        return struct.pack("<d", value)
    return repr((type(value).__name__, value)).encode()


class Server:
    """The server's books, by the request's name in FOCUS."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = entries
        self._by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for entry in entries:
            self._by_name[entry["rid"].partition("~")[0]].append(entry)

    def named(self, request: str) -> list[dict[str, Any]]:
        """Entries of one try; more than one is a try that was sent twice."""
        return self._by_name.get(request, [])

    def doubled(self) -> list[str]:
        """Tries that reached the server more than once."""
        return [name for name, entries in self._by_name.items() if len(entries) > 1]

    def below(self, tree: str) -> dict[int, list[dict[str, Any]]]:
        """Entries of one tree by expansion; `tree` is run/round/attempt/digest."""
        return self._by_tree.get(tree, {})

    @cached_property
    def _by_tree(self) -> dict[str, dict[int, list[dict[str, Any]]]]:
        found: dict[str, dict[int, list[dict[str, Any]]]] = {}
        for name, entries in self._by_name.items():
            tree, *rest = name.rsplit("/", 3)
            if len(rest) == 3:
                found.setdefault(tree, {}).setdefault(int(rest[0]), []).extend(entries)
        return found


@dataclass(frozen=True)
class Export:
    """One collection as it was exported."""

    tree: dict[str, Any]
    actor: list[dict[str, Any]]
    critic: list[dict[str, Any]]
    books: dict[str, Any]
    failures: list[dict[str, Any]]
    accepted: bool
    settings: dict[str, Any]

    @property
    def header(self) -> dict[str, Any]:
        header: dict[str, Any] = self.tree["header"]
        return header

    @property
    def nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = self.tree["nodes"]
        return nodes

    @property
    def identity(self) -> tuple[Any, ...]:
        """What no other tree may share."""
        header = self.header
        problem = header["problem"]["id"]
        return header["run"], header["round"], header["attempt"], type(problem).__name__, problem

    @property
    def where(self) -> str:
        return "/".join(map(str, self.identity))

    @cached_property
    def wire_name(self) -> str:
        """How its requests begin, from the records' key or the tree's own edges."""
        for node in self.nodes[1:]:
            name: str = node["edge"]["request_id"].rsplit("/", 3)[0]
            return name
        header = self.header
        key = self.settings["key"]
        digest = hashlib.sha256(f"{header['problem']['id']!r}/{key}".encode()).hexdigest()[:32]
        return f"{header['run']}/{header['round']}/{header['attempt']}/{digest}"

    @cached_property
    def children(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            if node["parent"] is not None:
                found[node["parent"]].append(number)
        return found

    def sampled(self, number: int) -> Iterator[tuple[int, float]]:
        """Sampled ids of a node's edge with their log-probs."""
        for span in self.nodes[number]["edge"]["spans"]:
            if span["log_probs"] is not None:
                yield from zip(span["ids"], span["log_probs"], strict=True)

    def context(self, number: int) -> list[int]:
        """Every id that conditions what follows a node: from the prompt, or from the last fold."""
        path = []
        current: int | None = number
        while current and self.nodes[current]["rebased"] is None:
            path.append(current)
            current = self.nodes[current]["parent"]
        ids = list(self.nodes[current]["rebased"] if current else self.header["prompt_ids"])
        for node in reversed(path):
            for span in self.nodes[node]["edge"]["spans"]:
                ids += span["ids"]
        return ids

    def spent(self, number: int) -> tuple[int, int]:
        """Sampled ids and turns from the root to a node."""
        ids = turns = 0
        current: int | None = number
        while current:
            ids += len(list(self.sampled(current)))
            turns += self.nodes[current]["edge"]["duration"]
            current = self.nodes[current]["parent"]
        return ids, turns

    @cached_property
    def has_turns(self) -> bool:
        """Whether observations follow replies: then less room may be left than ids show."""
        return any(node["edge"]["kind"] in ("turn", "fold") for node in self.nodes[1:])


def read_server(folder: Path) -> Server:
    """What the server of a run wrote down."""
    return Server(list(_lines(folder / "server.jsonl")))


def read_exports(folder: Path) -> Iterator[Export]:
    """What a run exported, tree by tree."""
    for line in _lines(folder / "trees.jsonl"):
        yield Export(**line)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines end at newlines and nowhere else."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield json.loads(line)
