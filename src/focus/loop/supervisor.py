"""Keeps a closed loop running: children alive, rounds decided, the end found."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from focus.critic.store import SnapshotStore
from focus.errors import ConfigError, StoreError
from focus.loop.children import Child, ChildPlan
from focus.loop.deciding import Decider
from focus.loop.processes import end_all, find_marked
from focus.loop.rounds import FOLDER_VARIABLE
from focus.loop.settings import FOCUS, LoopSettings
from focus.loop.tags import RoundTag, RoundTags
from focus.records.files import read_if_present, write_whole

__all__ = ("LoopReporter", "LoopSummary", "Supervisor")

_POLL_S = 0.1
_STOP_S = 2.5
"""What children get to leave by themselves; with the kill after it, the end takes < 5 s."""

NAMES = ("server", "trainer", "actor")


class LoopReporter(Protocol):
    """Hears what the loop does; the command line shows it."""

    def say(self, text: str) -> None:
        """Something happened."""
        ...

    def decided(self, tag: RoundTag) -> None:
        """A round has its critic."""
        ...

    def status(self, text: str) -> None:
        """How things stand now."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoopSummary:
    """What a loop that has ended did.

    Attributes:
        rounds: decided ones, earlier supervisors' included.
        steered: those that a snapshot valued.
        versions: published snapshots.
        restarts: of children, by this supervisor.
    """

    rounds: int
    steered: int
    versions: tuple[str, ...]
    restarts: int


class Supervisor:
    """One loop in one folder. A killed supervisor's successor goes on where it stopped.

    Args:
        settings: of the loop.
        home: where the actor's command runs: the config file's folder.
        report: hears of everything.
    """

    def __init__(self, settings: LoopSettings, *, home: Path, report: LoopReporter) -> None:
        self._settings = settings
        self._report = report
        self._folder = Path(settings.folder)
        self._home = home
        self._tags = RoundTags(self._folder)
        self._decider = Decider(settings)
        self._children: dict[str, Child] = {}
        self._waits_for = ""
        self._finishing_since: float | None = None

    async def run(self) -> LoopSummary:
        """Until the actor's work is done and the critic has seen its last rounds.

        However it ends, no child is left: cancelled, it ends them within seconds.

        Raises:
            StoreError: another supervisor runs here, or folder, store or records are
                unusable.
            LifecycleError: a child died too often.
            ConfigError: a command cannot be run, or an address cannot be used.
        """
        with self._locked():
            url = self._prepare()
            try:
                while not await self._is_over():
                    await self._tend()
                    await self._decide(url)
                    self._report.status(self._status())
                    await anyio.sleep(_POLL_S)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._end_children)
        return self._summary()

    @classmethod
    def end_orphans(cls, settings: LoopSettings) -> int:
        """End the children that a killed supervisor left; returns how many there were."""
        found = [find_marked(_mark(Path(settings.folder), name)) for name in NAMES]
        living = [process for process in found if process is not None]
        end_all(living, patience_s=_STOP_S)
        return len(living)

    def _prepare(self) -> str:
        (self._folder / "logs").mkdir(exist_ok=True)
        SnapshotStore(self._settings.store).create()
        url = self._address()
        self._children = {
            plan.name: Child(plan, self._settings.restart) for plan in self._plans(url)
        }
        for child in self._children.values():
            if child.adopt():
                self._report.say(f"{child.plan.name} found running, going on with it")
        return url

    def _plans(self, url: str) -> list[ChildPlan]:
        settings = self._settings
        plans = []
        if not settings.server.url:
            port = url.rsplit(":", 1)[1]
            serve = ("critic", "serve", settings.store, "--host", settings.server.host)
            words = (*FOCUS, *serve, "--port", port, *settings.server.options)
            plans.append(self._plan("server", words))
        if settings.trainer.launch:
            plans.append(self._plan("trainer", self._trainer_words()))
        if settings.actor.command:
            actor = self._plan("actor", settings.actor.command, ends=True)
            plans.append(replace(actor, folder=self._home / settings.actor.folder))
        return plans

    def _trainer_words(self) -> tuple[str, ...]:
        settings = self._settings
        if settings.trainer.command:
            return settings.trainer.command
        words: tuple[str, ...] = (*FOCUS, "critic", "train", settings.records)
        words += ("--store", settings.store, "--follow")
        if settings.outcomes:
            words += ("--outcomes", settings.outcomes)
        return (*words, *settings.trainer.options)

    def _plan(self, name: str, command: tuple[str, ...], *, ends: bool = False) -> ChildPlan:
        return ChildPlan(
            name=name,
            command=command,
            folder=self._home,
            log=self._folder / "logs" / f"{name}.log",
            mark=_mark(self._folder, name),
            environment={FOLDER_VARIABLE: str(self._folder)},
            ends=ends,
        )

    def _address(self) -> str:
        """The server's address: one for the loop's whole life, so tags stay true."""
        server = self._settings.server
        if server.url:
            return server.url
        path = self._folder / "address"
        known = read_if_present(path)
        if known is not None:
            return known.decode().strip()
        port = server.port or _free_port(server.host)
        url = f"http://{server.host}:{port}"
        write_whole(path, f"{url}\n".encode(), overwrite=True, fsync=True)
        return url

    async def _tend(self) -> None:
        """Start what is due, bury what died.

        The trainer waits for the first accepted round: until one is marked, a reader takes
        what lies there, and a job that dies before its first save takes that back.
        """
        for name, child in self._children.items():
            if name == "trainer" and child.process is None and not await self._has_records():
                continue
            happened = await anyio.to_thread.run_sync(child.tend, time.monotonic())
            if happened is not None:
                self._report.say(happened)

    async def _has_records(self) -> bool:
        return await anyio.to_thread.run_sync(self._decider.last_accepted_round) >= 0

    async def _decide(self, url: str) -> None:
        """Give the rounds that were asked for their critic."""
        self._waits_for = ""
        for round in await anyio.to_thread.run_sync(self._tags.wanted):
            decision = await self._decider.decide(round, url=url)
            if decision.tag is None:
                self._waits_for = f"round {round} waits for {decision.waits_for}"
                return
            await anyio.to_thread.run_sync(self._tags.write, decision.tag)
            self._report.decided(decision.tag)

    async def _is_over(self) -> bool:
        """The actor is done, and the critic has seen its rounds or has had its time."""
        actor = self._children.get("actor")
        if actor is None or not actor.is_done:
            return False
        self._finishing_since = self._finishing_since or time.monotonic()
        if "trainer" not in self._children:
            return True
        trained = await anyio.to_thread.run_sync(self._decider.last_trained_round)
        accepted = await anyio.to_thread.run_sync(self._decider.last_accepted_round)
        self._waits_for = f"the critic is trained on the rounds up to {accepted}"
        late = time.monotonic() - self._finishing_since > self._settings.finish_s
        return late or trained >= accepted

    def _end_children(self) -> None:
        living = [child.process for child in self._children.values() if child.process is not None]
        end_all(living, patience_s=_STOP_S)

    def _status(self) -> str:
        rounds = self._tags.rounds()
        tag = self._tags.read(rounds[-1]) if rounds else None
        parts = ["no round yet" if tag is None else f"round {tag.round}"]
        if tag is not None:
            parts.append(f"{tag.snapshot} steers" if tag.steering else f"constant {tag.constant:g}")
        parts += [_state(child) for child in self._children.values()]
        return " · ".join([*parts, *([self._waits_for] if self._waits_for else [])])

    def _summary(self) -> LoopSummary:
        tags = [self._tags.read(round) for round in self._tags.rounds()]
        return LoopSummary(
            rounds=len(tags),
            steered=sum(1 for tag in tags if tag is not None and tag.steering),
            versions=SnapshotStore(self._settings.store).versions(),
            restarts=sum(child.restarts for child in self._children.values()),
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One supervisor per folder; the system frees the lock when it dies."""
        with contextlib.ExitStack() as stack:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(open(self._folder / ".lock", "ab"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(f"{self._folder}: another focus loop runs here") from error
            except OSError as error:
                raise StoreError(f"{self._folder} cannot be used: {error.strerror}") from error
            yield


def _mark(folder: Path, name: str) -> str:
    return f"{os.path.realpath(folder)}#{name}"


def _state(child: Child) -> str:
    state = "done" if child.is_done else "up" if child.process is not None else "not running"
    again = f" (restarted {child.restarts}×)" if child.restarts else ""
    return f"{child.plan.name} {state}{again}"


def _free_port(host: str) -> int:
    try:
        with socket.create_server((host, 0)) as listener:
            port: int = listener.getsockname()[1]
            return port
    except OSError as error:
        raise ConfigError(f"server.host {host!r} cannot be used: {error.strerror}") from error
