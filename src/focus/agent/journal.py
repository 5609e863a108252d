"""Finished edges of unfinished trees, on disk: what a killed collection need not sample again."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import anyio.to_thread

from focus.checkpoint import Allowance, Checkpoint, Fold
from focus.errors import SchemaError, StoreError
from focus.execution import RequestCounts
from focus.records.files import read_if_present, store_error
from focus.records.strict_json import Fields, dumps, loads
from focus.records.tree_codec import decode_edge, encode_edge
from focus.sampling import Sampling
from focus.tokens import TokenIds
from focus.tree import Edge

__all__ = ("Entry", "Journal", "Kept", "asked")

SCHEMA = "focus.journal/1"


@dataclass(frozen=True, slots=True)
class Kept:
    """How a state or a workspace is kept.

    Attributes:
        kind: ``"parent"``: the parent's own; ``"snapshot"``: `value` restores it;
            ``"none"``: it cannot be stored, so the environment must answer again.
        value: plain JSON.
    """

    kind: str
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One settled edge.

    Attributes:
        name: of its request, without the try.
        asked: digest of what it was asked with.
        edge, is_terminal, is_truncated, rebased: as in :class:`focus.agent.Step`.
        prompt_length, allowance, fold: of the checkpoint it leads to.
        state, workspace: how the checkpoint's are kept.
        counts: what it added to the collection's request books.
    """

    name: str
    asked: str
    edge: Edge
    is_terminal: bool
    is_truncated: bool
    rebased: TokenIds | None
    prompt_length: int
    allowance: Allowance
    fold: Fold | None
    state: Kept
    workspace: Kept
    counts: RequestCounts

    def checkpoint(self, parent: Checkpoint, *, state: Any, workspace: Any) -> Checkpoint:
        """Where the edge led from `parent`."""
        context = parent.context
        if self.rebased is not None:
            context = context.first
            context = context.extended(self.rebased[len(context) :])
        else:
            for span in self.edge.spans:
                context = context.extended(span.ids, span.log_probs)
        return replace(
            parent,
            context=context,
            prompt_length=self.prompt_length,
            state=state,
            allowance=self.allowance,
            workspace=workspace,
            fold=self.fold,
        )


def asked(prefix: TokenIds, sampling: Sampling, *, version: str) -> str:
    """Digest of everything that decides a reply, but for chance."""
    told = repr((prefix, asdict(sampling), version))
    return hashlib.sha256(told.encode()).hexdigest()[:32]


class Journal:
    """Edges by request name, one file per tree, one line per edge.

    A line is written at once when its edge settles, so a reader sees whole edges only; what
    a kill cut off is dropped. Give it to ``Agent(journal=...)`` and collect again under the
    same identity and settings: edges that are there are not sampled again, their states
    are restored where the environment has `snapshot` and `restore`, and where it has not
    it answers the recorded replies again. Requests are counted as they were.

    Args:
        folder: made when it is first written to. One process at a time.
        fsync: make each edge durable against power loss too.
    """

    def __init__(self, folder: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.folder = Path(folder)
        self._fsync = fsync
        self._known: dict[str, dict[str, Entry]] = {}
        self._lock = threading.Lock()

    async def entry(self, tree: str, name: str, *, asked: str) -> Entry | None:
        """The edge of a request, if it is there.

        Raises:
            SchemaError: the file is damaged before its end, or of another schema.
            StoreError: the edge was asked for with other settings, or cannot be read.
        """
        known = await anyio.to_thread.run_sync(self._entries, tree)
        found = known.get(name)
        if found is not None and found.asked != asked:
            raise StoreError(
                f"{self.path(tree)}: edge {name} was collected with another prefix, sampling or "
                "policy; collect under the settings of then, or into another journal"
            )
        return found

    async def note(self, tree: str, entry: Entry) -> None:
        """Write one edge.

        Raises:
            RecordError: a snapshot is no plain JSON.
            StoreError: the disk refused.
        """
        body = _encoded(entry)
        digest = hashlib.sha256(dumps(body, what=entry.name)).hexdigest()
        line = dumps({"schema": SCHEMA, "sha256": digest, "body": body}, what=entry.name) + b"\n"
        await anyio.to_thread.run_sync(self._append, tree, line)
        self._known[tree][entry.name] = entry

    def forget(self, tree: str) -> None:
        """Remove a tree's edges, once the tree itself is stored.

        Raises:
            StoreError: the file cannot be removed.
        """
        self._known.pop(tree, None)
        try:
            self.path(tree).unlink(missing_ok=True)
        except OSError as error:
            raise store_error(self.path(tree), "remove it", error) from error

    def clear(self) -> None:
        """Remove the edges of all trees, and the folder.

        Raises:
            StoreError: it cannot be removed.
        """
        self._known.clear()
        try:
            shutil.rmtree(self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(self.folder, "remove it", error) from error

    def path(self, tree: str) -> Path:
        """The file of a tree; its name is a hash, so data chooses no path."""
        return self.folder / f"{hashlib.sha256(tree.encode()).hexdigest()[:32]}.jsonl"

    def _entries(self, tree: str) -> dict[str, Entry]:
        with self._lock:
            if tree not in self._known:
                self._known[tree] = self._load(self.path(tree))
            return self._known[tree]

    def _load(self, path: Path) -> dict[str, Entry]:
        """Whole lines of a file; what follows the last newline is cut off."""
        data = read_if_present(path)
        if data is None:
            return {}
        whole = data[: data.rfind(b"\n") + 1]
        entries = [
            _decoded(line, where=f"{path}, line {number}")
            for number, line in enumerate(whole.split(b"\n")[:-1], start=1)
        ]
        if len(whole) < len(data):
            try:
                os.truncate(path, len(whole))
            except OSError as error:
                raise store_error(path, "cut off its torn end", error) from error
        return {entry.name: entry for entry in entries}

    def _append(self, tree: str, line: bytes) -> None:
        self._entries(tree)  # cuts off a torn end before anything follows it
        path = self.path(tree)
        try:
            with self._lock:
                self.folder.mkdir(parents=True, exist_ok=True)
                with open(path, "ab", buffering=0) as file:
                    rest = memoryview(line)
                    while rest:
                        rest = rest[file.write(rest) :]
                    if self._fsync:
                        os.fsync(file.fileno())
        except OSError as error:
            raise store_error(path, "write an edge", error) from error


def _encoded(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "asked": entry.asked,
        "edge": encode_edge(entry.edge),
        "terminal": entry.is_terminal,
        "truncated": entry.is_truncated,
        "rebased": None if entry.rebased is None else list(entry.rebased),
        "prompt_length": entry.prompt_length,
        "tokens_left": entry.allowance.tokens,
        "turns_left": entry.allowance.turns,
        "fold": None if entry.fold is None else asdict(entry.fold),
        "state": {"kind": entry.state.kind, "value": entry.state.value},
        "workspace": {"kind": entry.workspace.kind, "value": entry.workspace.value},
        "counts": {**asdict(entry.counts), "faults": dict(entry.counts.faults)},
    }


def _decoded(line: bytes, *, where: str) -> Entry:
    outer = Fields(loads(line, where=where), where=where)
    schema, digest, body = outer.text("schema"), outer.text("sha256"), outer.object("body")
    outer.done()
    if schema != SCHEMA:
        raise SchemaError(f"{where}: schema is {schema!r}, this reader knows {SCHEMA!r}")
    if hashlib.sha256(dumps(body, what=where)).hexdigest() != digest:
        raise SchemaError(f"{where}: its content does not match its own SHA-256")
    inner = Fields(body, where=where)
    fold = inner.optional_fields("fold")
    entry = Entry(
        name=inner.text("name"),
        asked=inner.text("asked"),
        edge=decode_edge(inner.fields("edge")),
        is_terminal=inner.flag("terminal"),
        is_truncated=inner.flag("truncated"),
        rebased=inner.optional_integers("rebased"),
        prompt_length=inner.integer("prompt_length"),
        allowance=Allowance(
            tokens=inner.optional_integer("tokens_left"), turns=inner.optional_integer("turns_left")
        ),
        fold=None if fold is None else _fold(fold),
        state=_kept(inner.fields("state")),
        workspace=_kept(inner.fields("workspace")),
        counts=_counts(inner.fields("counts")),
    )
    inner.done()
    return entry


def _fold(values: Fields) -> Fold:
    fold = Fold(calls_answered=values.integer("calls_answered"), repairs=values.integer("repairs"))
    values.done()
    return fold


def _kept(values: Fields) -> Kept:
    kept = Kept(values.text("kind"), values.raw("value"))
    values.done()
    if kept.kind not in ("parent", "snapshot", "none"):
        raise SchemaError(f"{values.where}: unknown kind {kept.kind!r}")
    return kept


def _counts(values: Fields) -> RequestCounts:
    faults = values.fields("faults")
    sent = values.integer("sent")
    counts = RequestCounts(
        sent=sent,
        # Journals written before siblings shared calls do not tell: each try had its own.
        calls=values.integer("calls") if "calls" in values else sent,
        accepted=values.integer("accepted"),
        failed=values.integer("failed"),
        cancelled=values.integer("cancelled"),
        late=values.integer("late"),
        discarded_tokens=values.integer("discarded_tokens"),
        prompt_tokens=values.integer("prompt_tokens"),
        cached_tokens=values.optional_integer("cached_tokens"),
        faults={name: faults.integer(name) for name in faults.names()},
    )
    values.done()
    return counts
