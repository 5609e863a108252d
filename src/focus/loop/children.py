"""A child that is kept running: restarted with growing pauses, given up after too many."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from focus.errors import LifecycleError
from focus.loop.processes import Process, end_all, find_marked, start
from focus.loop.settings import RestartSettings

__all__ = ("Child", "ChildPlan")

_REMAINS_S = 2.0
"""What members of a dead child's group get to end before its successor starts."""


@dataclass(frozen=True, kw_only=True)
class ChildPlan:
    """How a child is started.

    Attributes:
        name: ``actor``, ``trainer`` or ``server``.
        command: its words.
        folder: where it runs.
        log: what it prints is added here.
        mark: finds it again after the supervisor's death.
        environment: added to this process's.
        ends: whether exit code 0 means that its work is done.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    mark: str
    environment: Mapping[str, str] = field(default_factory=dict)
    ends: bool = False


@dataclass
class Child:
    """One child over its lives.

    Attributes:
        plan: how it is started.
        restart: how often and how soon.
        process: the life that runs, if any.
        deaths: when lives ended before their time, within the window.
        restarts: lives after the first, in this supervisor.
        is_done: its work is done; it is not started again.
    """

    plan: ChildPlan
    restart: RestartSettings
    process: Process | None = None
    deaths: deque[float] = field(default_factory=deque)
    restarts: int = 0
    is_done: bool = False
    _not_before: float = 0.0

    def adopt(self) -> bool:
        """Go on with a life that an earlier supervisor started; False if there is none."""
        self.process = find_marked(self.plan.mark)
        return self.process is not None

    def tend(self, now: float) -> str | None:
        """Start it if it is due; what happened, in words, or None.

        Raises:
            LifecycleError: it died too often.
            ConfigError: its command cannot be run.
        """
        if self.is_done:
            return None
        if self.process is not None:
            return self._buried(now) if self.process.has_ended() else None
        if now < self._not_before:
            return None
        self.restarts += bool(self.deaths)
        self.process = start(
            self.plan.command,
            mark=self.plan.mark,
            log=self.plan.log,
            folder=self.plan.folder,
            environment=self.plan.environment,
        )
        return f"{self.plan.name} started, process {self.process.pid}"

    def _buried(self, now: float) -> str:
        """Take note of a life's end; what it left of its group goes too."""
        assert self.process is not None
        code = self.process.exit_code
        end_all([self.process], patience_s=_REMAINS_S)
        self.process = None
        if self.plan.ends and code == 0:
            self.is_done = True
            return f"{self.plan.name} is done"
        self.deaths.append(now)
        while self.deaths and self.deaths[0] < now - self.restart.within_s:
            self.deaths.popleft()
        how = "ended" if code is None else f"ended with exit code {code}"
        if len(self.deaths) > self.restart.most:
            raise LifecycleError(
                f"{self.plan.name} {how}, {len(self.deaths)} times within "
                f"{self.restart.within_s:g} s; its last words are in {self.plan.log}"
            )
        pause_s = self.restart.first_pause_s * 2.0 ** (len(self.deaths) - 1)
        self._not_before = now + min(pause_s, self.restart.most_pause_s)
        return f"{self.plan.name} {how}; again in {self._not_before - now:.3g} s"
