"""Rounds, attempts, and when a round's critic records count.

Slime tells its hooks neither the round nor that a step was taken. The round follows from a
sample's running number. A process is one attempt, numbered after what lies in the sink's
directory. A round counts once Slime's checkpoint folder says that its model is saved,
because a restart begins after that round: what a dead process collected later never
counts, whatever it had done with it. Without checkpoints nothing restarts, and a round
counts when it is handed over.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from focus.collect import Collection, Ledger, total
from focus.errors import ConfigError, StoreError
from focus.records import JsonlDirectory
from focus.records.files import listed
from focus.records.jsonl import MANIFEST, PromptFile, accepted_attempts, read_manifest
from focus.tree import Identity

__all__ = (
    "Rounds",
    "accept_saved",
    "last_begun",
    "prompts_per_round",
    "run_name",
    "settle_all",
)

_TRACKER = "latest_checkpointed_iteration.txt"
_LOG = logging.getLogger("focus.integrations.slime")

_live: weakref.WeakSet[Rounds] = weakref.WeakSet()


def settle_all() -> None:
    """Accept, in every sink of this process, the rounds that Slime has saved by now."""
    for rounds in list(_live):
        rounds.settle()


def last_begun() -> Identity | None:
    """The latest round that this process has begun to collect; None before the first."""
    begun = [rounds.begun for rounds in list(_live) if rounds.begun is not None]
    return max(begun, key=lambda identity: identity.round, default=None)


def accept_saved(
    directory: str | os.PathLike[str], save: str | os.PathLike[str]
) -> tuple[int, ...]:
    """Accept the critic records of every round in Slime's checkpoint folder.

    The hooks do this whenever they are called. After the last round nothing calls them any
    more, unless it is evaluated; ``focus slime accept`` does it then.

    Args:
        directory: the critic sink's.
        save: Slime's ``--save``.

    Returns:
        The rounds that were not accepted before.

    Raises:
        StoreError: `directory` holds no records, or a mark cannot be written.
    """
    sink, found = JsonlDirectory(directory), _saved(save)
    read_manifest(sink.path)
    attempts = _latest_attempts(listed(sink.path))
    return tuple(_accept_until(sink, attempts, -1 if found is None else found.round))


def prompts_per_round(args: Any) -> int:
    """How many times Slime calls the hook per round.

    Raises:
        ConfigError: Slime's arguments do not say.
    """
    prompts = getattr(args, "rollout_batch_size", None)
    if not isinstance(prompts, int) or prompts < 1:
        raise ConfigError(f"--rollout-batch-size: expected a positive number, got {prompts!r}")
    return prompts * int(getattr(args, "n_samples_per_prompt", 1))


def run_name(args: Any) -> str:
    """The run's name: one per checkpoint folder, the same after a restart."""
    save = getattr(args, "save", None)
    if not save:
        return "slime"
    return f"slime-{hashlib.sha256(os.path.abspath(save).encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class _Saved:
    """The last round in a checkpoint folder, and when that was noted."""

    round: int
    noted_ns: int


def _saved(save: str | os.PathLike[str]) -> _Saved | None:
    """None while nothing is saved, or where it cannot be read: then nothing counts yet."""
    path = Path(save) / _TRACKER
    try:
        return _Saved(int(path.read_text(encoding="ascii")), path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


@dataclass(slots=True)
class _Round:
    """Books of the prompts of one round that were handed over."""

    ledgers: list[Ledger] = field(default_factory=list)
    successes: list[float] = field(default_factory=list)


class Rounds:
    """Books of one training hook; its calls may overlap and come from several threads.

    Attributes:
        begun: identity of the prompt that came last.
    """

    def __init__(self, sink: JsonlDirectory | None) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._rounds: defaultdict[int, _Round] = defaultdict(_Round)
        self._complete: set[int] = set()
        self._run: str | None = None
        self._save: str | None = None
        self._attempt = 0
        self._stale: _Saved | None = None
        self._wrote = False
        self.begun: Identity | None = None
        _live.add(self)

    def begin(self, args: Any, index: int) -> Identity:
        """The identity of a prompt's collection. The first call looks at the directory.

        Raises:
            StoreError: the sink's directory is none, or another run's.
            ConfigError: Slime resumes at one round and its prompts at another.
        """
        round = index // prompts_per_round(args)
        with self._lock:
            run = self._run or self._open(args, round)
            self._settle()
            self.begun = Identity(run=run, round=round, attempt=self._attempt)
        return self.begun

    def hand_over(self, args: Any, collection: Collection) -> None:
        """Store a prompt's critic records, before its samples are given away. Blocks.

        Raises:
            StoreError: they could not be stored; no part of them is visible.
        """
        stored = self._sink.write(collection.critic) if self._sink is not None else None
        round = collection.tree.header.identity.round
        with self._lock:
            self._wrote |= stored is not None
            books = self._rounds[round]
            books.ledgers.append(collection.ledger)
            if outcomes := collection.opening_outcomes:
                books.successes.append(fmean(outcomes))
            if len(books.ledgers) == prompts_per_round(args):
                self._close(round)
            self._settle()

    def settle(self) -> None:
        """Accept the rounds that Slime has saved by now."""
        with self._lock:
            self._settle()

    def _open(self, args: Any, round: int) -> str:
        run = (self._sink.run if self._sink is not None else None) or run_name(args)
        self._save = getattr(args, "save", None)
        self._stale = _saved(self._save) if self._save else None
        if self._sink is not None and os.path.lexists(self._sink.path):
            self._attempt = _join(self._sink, run, round)
        if self._attempt:
            _check_resumed(args, round, self._stale)
        self._run = run
        return run

    def _close(self, round: int) -> None:
        """Every prompt of a round is handed over: say how it went."""
        books = self._rounds.pop(round)
        spent = total(books.ledgers)
        _LOG.info(
            "round %d, attempt %d: %d prompts, collection success %.4f, %d tokens generated, "
            "%d trained",
            round,
            self._attempt,
            len(books.ledgers),
            fmean(books.successes) if books.successes else math.nan,
            spent.tokens_generated,
            spent.tokens_trained,
        )
        if self._wrote:
            self._complete.add(round)

    def _settle(self) -> None:
        if not self._complete or self._sink is None:
            return
        if self._save:
            found = _saved(self._save)
            last = -1 if found is None or found == self._stale else found.round
        else:
            last = max(self._complete)
        for round in sorted(self._complete):
            if round <= last:
                self._sink.accept(round=round, attempt=self._attempt)
                self._complete.discard(round)


def _join(sink: JsonlDirectory, run: str, round: int) -> int:
    """Take over a directory at `round`; returns this process's attempt.

    Earlier rounds are part of the model that Slime has loaded, in the attempt that came
    last; what was collected beyond them is not.
    """
    names = listed(sink.path)
    if MANIFEST in names and (found := read_manifest(sink.path)) != run:
        raise StoreError(
            f"{sink.path}: the directory belongs to run {found!r}, not to {run!r} (named after "
            "--save). Choose another directory for another experiment."
        )
    attempts = _latest_attempts(names)
    if not attempts:
        return 0
    sink.roll_back(after=round - 1)
    _accept_until(sink, attempts, round - 1)
    return 1 + max(attempts.values())


def _latest_attempts(names: Sequence[str]) -> dict[int, int]:
    """The highest attempt of each round that has files."""
    attempts: dict[int, int] = {}
    for file in filter(None, map(PromptFile.parse, names)):
        attempts[file.round] = max(file.attempt, attempts.get(file.round, 0))
    return attempts


def _accept_until(sink: JsonlDirectory, attempts: Mapping[int, int], last: int) -> list[int]:
    """Accept every unmarked round up to `last`; returns those."""
    marks = accepted_attempts(sink.path)
    fresh = [round for round in sorted(attempts) if round <= last and marks.get(round) is None]
    for round in fresh:
        sink.accept(round=round, attempt=attempts[round])
    return fresh


def _check_resumed(args: Any, round: int, saved: _Saved | None) -> None:
    """Slime saves model and data position one after the other; a crash can part them."""
    load, save = (str(getattr(args, name, None) or "") for name in ("load", "save"))
    resumes = bool(load and save) and os.path.abspath(load) == os.path.abspath(save)
    chosen = getattr(args, "ckpt_step", None)
    if resumes and chosen is None and saved is not None and round != saved.round + 1:
        raise ConfigError(
            f"--load: the model continues with round {saved.round + 1}, the prompts with round "
            f"{round}. Either {load}/rollout/global_dataset_state_dict_{saved.round}.pt is "
            "missing, or the batch sizes changed since."
        )
