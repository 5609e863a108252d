"""Trees for every row of a file of problems: the engine behind ``focus collect``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import anyio
import anyio.to_thread

from focus.agent import Agent, Journal, Segments
from focus.checkpoint import Allowance
from focus.collect import Collection, Collector, total
from focus.collect.texts import edge_texts
from focus.credit import DirectBranchTd, RefinedTd
from focus.credit.base import Estimator
from focus.critic import Critic
from focus.errors import (
    ConfigError,
    FatalError,
    FocusError,
    GraderError,
    LifecycleError,
    MissingExtra,
    ProblemError,
    StoreError,
)
from focus.execution import AdmissionPool, Execution, ExecutionServices
from focus.policies.base import Policy
from focus.problem import Message, Problem
from focus.records.packing import PACKINGS, Packing
from focus.records.problems import ProblemFile
from focus.sampling import Sampling, derive_seed
from focus.search import Search
from focus.tasks.math_env import MathEnv
from focus.training.collection_folder import CollectedRow, CollectionFolder
from focus.tree import Identity

__all__ = ("CREDITS", "CollectReporter", "CollectRun", "CollectSettings", "Refusal")

CREDITS = ("refined", "direct-branch")

_ENDS_ALL = (ConfigError, StoreError, MissingExtra, LifecycleError, GraderError, FatalError)


@dataclass(frozen=True, kw_only=True)
class CollectSettings:
    """What decides the trees of a collection; a rerun into the same folder repeats it.

    Attributes:
        problems: the file, as an absolute path.
        model: name or folder of the policy.
        seed: of everything that is drawn.
        tokens: generation budget of one tree.
        segment: most ids per edge.
        allowance: most sampled ids from root to leaf.
        concurrency: expansions in flight per tree.
        temperature: of collection; the trainer must use the same.
        critic: the constant that values every checkpoint, in [0, 1].
        credit: ``"refined"``, fit for a constant critic, or ``"direct-branch"``.
        packing: ``"segment"``, ``"path"`` or ``"tree"``.
    """

    problems: str
    model: str
    seed: int = 0
    tokens: int = 16_384
    segment: int = 256
    allowance: int = 4096
    concurrency: int = 4
    temperature: float = 1.0
    critic: float = 0.5
    credit: str = "refined"
    packing: Packing = "segment"

    def __post_init__(self) -> None:
        if self.credit not in CREDITS:
            raise ConfigError(f"credit must be one of {', '.join(CREDITS)}, got {self.credit!r}")
        if self.packing not in PACKINGS:
            raise ConfigError(f"packing must be one of {', '.join(PACKINGS)}, got {self.packing!r}")
        if self.tokens < 2:
            raise ConfigError(f"a budget of {self.tokens} tokens buys nothing; raise tokens")
        if self.allowance < self.segment:
            raise ConfigError(
                f"allowance of {self.allowance} tokens is smaller than one segment of "
                f"{self.segment}; raise allowance or lower segment"
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def collector(
        self,
        policy: Policy,
        problem: Problem,
        services: ExecutionServices,
        journal: Journal | None = None,
    ) -> Collector:
        """A collector for one row; everything passed in is borrowed.

        Raises:
            ConfigError: the settings do not fit together.
        """
        credit: Estimator = RefinedTd() if self.credit == "refined" else DirectBranchTd()
        return Collector(
            agent=Agent(
                policy,
                parser=Segments(self.segment),
                sampling=Sampling(seed=derive_seed(self.seed, "collect")),
                allowance=Allowance(tokens=self.allowance),
                execution=Execution(services=services),
                journal=journal,
            ),
            env=MathEnv(problem.label),
            search=Search.two_phase(tokens=self.tokens, concurrency=self.concurrency),
            critic=Critic.constant(self.critic),
            credit=credit,
            packing=self.packing,
            own=False,
        )

    def check(self, policy: Policy) -> None:
        """Refuse what no row could be collected with, before a token or a file.

        Raises:
            ConfigError: an allowance below one segment, a budget that buys nothing, a
                critic value outside [0, 1], a tokenizer without a chat template.
        """
        probe = Problem(id="probe", prompt="1 + 1")
        self.collector(policy, probe, ExecutionServices())
        policy.render((Message("user", "1 + 1"),))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row without a tree.

    Attributes:
        status: ``"bad"`` when the row itself is at fault, else ``"failed"``.
        reason: the error's text.
    """

    status: Literal["bad", "failed"]
    reason: str

    @classmethod
    def of(cls, error: FocusError) -> Refusal:
        return cls("bad" if isinstance(error, ProblemError) else "failed", str(error))


class CollectReporter(Protocol):
    """Hears what a collection does; the command line draws it."""

    def progress(self, done: int, total: int, tokens: int) -> None:
        """Rows settled in this run, of those to do, and tokens of the collected ones."""
        ...

    def refused(self, line: int, refusal: Refusal) -> None:
        """A row gave no tree."""
        ...


@dataclass(kw_only=True)
class CollectRun:
    """Collects what is missing in a folder, row by row, as many at once as the pool feeds.

    Attributes:
        settings: what decides the trees.
        policy: borrowed.
        folder: opened for these settings.
        report: hears of progress.
        capacity: requests in flight over all trees; changes time only.
        limit: most rows, from the top of the file; None is all.
        allow_partial: keep trees with failed expansions.
    """

    settings: CollectSettings
    policy: Policy
    folder: CollectionFolder
    report: CollectReporter
    capacity: int = 64
    limit: int | None = None
    allow_partial: bool = False
    _collected: dict[int, CollectedRow] = field(default_factory=dict, init=False)
    _refused: dict[int, Refusal] = field(default_factory=dict, init=False)
    _fatal: FocusError | None = field(default=None, init=False)
    _fresh: int = field(default=0, init=False)

    async def run(self, file: ProblemFile) -> dict[str, Any]:
        """Collect each good row that is not there yet; returns the summary.

        Index and summary are written in any case, also when this is interrupted.

        Raises:
            StoreError, ConfigError, MissingExtra, GraderError, FatalError: nothing more can
                be collected until something outside is changed.
        """
        rows = list(zip(file.lines, file.problems, strict=True))[: self.limit]
        started = time.monotonic()
        with self.folder.locked():
            missing = self._restore(rows)
            try:
                async with ExecutionServices(AdmissionPool(self.capacity)) as services:
                    await self._collect(missing, services)
            finally:
                summary = self._summary(rows, file, time.monotonic() - started)
                self.folder.write_result(self._index(rows, file), summary)
        return summary

    def _restore(self, rows: list[tuple[int, Problem]]) -> list[tuple[int, Problem]]:
        missing = []
        for line, problem in rows:
            known = self.folder.row(problem)
            if known is None:
                missing.append((line, problem))
            else:
                self._collected[line] = known
        return missing

    async def _collect(
        self, missing: list[tuple[int, Problem]], services: ExecutionServices
    ) -> None:
        todo = iter(missing)
        self.report.progress(0, len(missing), 0)
        trees_at_once = -(-self.capacity // self.settings.concurrency)
        async with anyio.create_task_group() as group:
            for _ in range(min(trees_at_once, len(missing))):
                group.start_soon(self._work, todo, len(missing), services, group.cancel_scope)
        if self._fatal is not None:
            raise self._fatal

    async def _work(
        self,
        todo: Iterator[tuple[int, Problem]],
        of: int,
        services: ExecutionServices,
        scope: anyio.CancelScope,
    ) -> None:
        """Settle rows from the common list until it is empty or one error ends them all."""
        for line, problem in todo:
            try:
                self._collected[line] = await self._one(problem, services)
                self._fresh += 1
            except FocusError as error:
                if _ends_all(error):
                    cause = error.__cause__
                    self._fatal = self._fatal or (cause if isinstance(cause, StoreError) else error)
                    scope.cancel()
                    return
                self._refused[line] = Refusal.of(error)
                self.report.refused(line, self._refused[line])
            tokens = sum(row.ledger.tokens_generated for row in self._collected.values())
            self.report.progress(self._fresh + len(self._refused), of, tokens)

    async def _one(self, problem: Problem, services: ExecutionServices) -> CollectedRow:
        journal = self.folder.journal(problem)
        collector = self.settings.collector(self.policy, problem, services, journal)
        async with collector:
            collection = await collector.collect(
                problem,
                allow_partial=self.allow_partial,
                identity=Identity(run=self.folder.run),
            )
        row = await anyio.to_thread.run_sync(self._store, problem, collection)
        await anyio.to_thread.run_sync(journal.clear)
        return row

    def _store(self, problem: Problem, collection: Collection) -> CollectedRow:
        return self.folder.store(problem, collection, edge_texts(collection.tree, self.policy))

    def _index(self, rows: list[tuple[int, Problem]], file: ProblemFile) -> list[dict[str, Any]]:
        entries: dict[int, dict[str, Any]] = {
            bad.line: {"line": bad.line, "status": "bad", "reason": bad.reason}
            for bad in file.bad_rows
        }
        for line, problem in rows:
            entry: dict[str, Any] = {"line": line, "id": problem.id, "key": problem.key}
            if line in self._collected:
                entry |= {"status": "collected", **self._collected[line].entry()}
            elif line in self._refused:
                entry |= asdict(self._refused[line])
            else:
                entry |= {"status": "left"}
            entries[line] = entry
        return [entries[line] for line in sorted(entries)]

    def _summary(
        self, rows: list[tuple[int, Problem]], file: ProblemFile, wall_s: float
    ) -> dict[str, Any]:
        done = list(self._collected.values())
        statuses = [refusal.status for refusal in self._refused.values()]
        rollouts = sum(row.root_rollouts for row in done)
        success = sum(row.root_rollouts * (row.root_success or 0.0) for row in done)
        return {
            "rows": len(rows) + len(file.bad_rows),
            "collected": len(done),
            "fresh": self._fresh,
            "bad": len(file.bad_rows) + statuses.count("bad"),
            "failed": statuses.count("failed"),
            "left": len(rows) - len(done) - len(statuses),
            "success": success / rollouts if rollouts else None,
            "mixed": sum(1 for row in done if row.right and row.wrong),
            "actor_records": sum(row.actor_records for row in done),
            "critic_records": sum(row.critic_records for row in done),
            "wall_s": round(wall_s, 3),
            "ledger": total([row.ledger for row in done]).to_dict(),
        }


def _ends_all(error: FocusError) -> bool:
    """Whether each further row would fail the same way.

    A grader that breaks on one reply fails its row; one that breaks before any token is broken.
    """
    cause = error.__cause__
    return isinstance(error, _ENDS_ALL) or isinstance(cause, FatalError | ConfigError | StoreError)
