"""The training loop: collect → credit → update critic and actor → publish → judge."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol, TypeVar

import anyio.to_thread

from focus._cancellation import siblings
from focus.collect import Collection
from focus.collect.texts import edge_texts
from focus.errors import ConfigError, StoreError
from focus.execution import AdmissionPool, ExecutionServices
from focus.problem import Problem
from focus.records import JsonlDirectory, read_critic_records, save_tree
from focus.records.files import read_whole
from focus.records.records import CriticRecord
from focus.records.strict_json import loads
from focus.sampling import derive_seed
from focus.tasks.registry import Task
from focus.training.gate import GateSample, judge
from focus.training.learner import Learner
from focus.training.ledger import AppliedRound, RunLedger
from focus.training.making import make_collector
from focus.training.metrics import MetricsLog, judgement_metrics, round_metrics
from focus.training.rundir import RunDirectory
from focus.training.searches import search_of
from focus.training.settings import TrainSettings
from focus.training.solving import Accuracy, evaluate, gate_samples
from focus.training.steering import OutcomeWindow, Steering
from focus.training.summary import run_summary, versions
from focus.tree import Identity

__all__ = ("Reporter", "TrainingRun")

T = TypeVar("T")


class Reporter(Protocol):
    """Hears what a run does; the command line draws it."""

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        """Progress of the current piece of work."""
        ...

    def round(self, metrics: Mapping[str, Any]) -> None:
        """A round has been applied."""
        ...


@dataclass(kw_only=True)
class TrainingRun:
    """One run in one directory, from its first round or from where it stopped.

    Attributes:
        settings: all of them.
        task, learner: borrowed; the caller closes the learner.
        directory: made by RunDirectory.create or reopen.
        report: hears of progress.
        annotate: more entries of a round's metrics, from those there are.
    """

    settings: TrainSettings
    task: Task
    learner: Learner
    directory: RunDirectory
    report: Reporter
    annotate: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda metrics: {}

    async def run(self) -> dict[str, Any]:
        """Train all rounds that are not applied yet; returns the summary.

        Raises:
            StoreError: the directory is in use or cannot be written.
            ConfigError: it was started with other settings.
            CollectionFailed and others: the round is not applied; resume repeats it.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.directory.locked())
            self._ledger = stack.enter_context(contextlib.closing(RunLedger(self.directory.ledger)))
            await self._begin()
            stack.callback(self._metrics.close)
            async with ExecutionServices(AdmissionPool(self.settings.capacity)) as services:
                self._services = services
                return await self._train()

    async def _begin(self) -> None:
        """Set up or restore everything that the next round depends on."""
        self._note_settings()
        self._name = self._ledger.fact("name")
        self._sink = JsonlDirectory(self.directory.critic, fsync=True)
        decay = self.settings.decay if self.settings.credit == "lambda" else None
        self._steering = Steering(OutcomeWindow(self.settings.replay_rounds), decay)
        self._replay: deque[list[CriticRecord]] = deque(maxlen=self.settings.replay_rounds)
        done = self._ledger.applied()
        self._metrics = MetricsLog(self.directory, [entry.metrics for entry in done])
        if self.directory.critic.exists():
            # A crash between sink and ledger leaves a mark for a round that does not count.
            self._sink.roll_back(after=len(done) - 1)
        if done:
            await self._restore(done[-1])

    def _note_settings(self) -> None:
        """Keep the settings of a new run; of an older one, refuse others than a longer run's."""
        wanted = json.loads(json.dumps(self.settings.to_dict()))
        known = self._ledger.fact("settings")
        if known is not None and {**known, "rounds": 0} != {**wanted, "rounds": 0}:
            raise ConfigError(
                f"{self.directory.root} was started with other settings than these; only "
                "'rounds' may change on resume (its config.json shows them)"
            )
        if known == wanted:
            return
        self.directory.write_json(self.directory.root / "config.json", wanted)
        if known is None:
            self.directory.write_json(
                self.directory.root / "run.json", {"versions": versions(), "task": self.task.name}
            )
            # Seeds of requests come from this name, so no folder may be part of it.
            self._ledger.note("name", PurePath(self.task.name).name)
        self._ledger.note("settings", wanted)

    async def _restore(self, last: AppliedRound) -> None:
        folder = self.directory.checkpoints / last.checkpoint
        await _blocking(self.learner.load, folder)
        path = folder / "state.json"
        state: Any = loads(read_whole(path), where=str(path))
        try:
            self._steering.restore(state["steering"])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path}: not what this version wrote: {error!r}") from error
        for round_index in range(last.round + 1 - self.settings.replay_rounds, last.round + 1):
            if round_index >= 0:
                self._replay.append(self._sink_records(round_index))

    def _sink_records(self, round_index: int) -> list[CriticRecord]:
        return list(read_critic_records(self.directory.critic, rounds={round_index}))

    async def _train(self) -> dict[str, Any]:
        before = await self._accuracy("accuracy_before", "initial", "evaluate initial")
        await self._pilot()
        first = len(self._ledger.applied())
        for round_index in range(first, self.settings.rounds):
            await self._round(round_index)
        after = await self._accuracy("accuracy_after", "final", "evaluate final")
        summary = self._summary(before, after)
        self.directory.write_json(self.directory.summary, summary)
        return summary

    async def _accuracy(self, fact: str, model: str, stage: str) -> Accuracy:
        """Held-out accuracy of the weights now published; measured once per run and fact."""
        rounds = len(self._ledger.applied())
        known = self._ledger.fact(fact)
        if known is not None and (fact == "accuracy_before" or known["rounds"] == rounds):
            return Accuracy(**{**known["accuracy"], "ci95": tuple(known["accuracy"]["ci95"])})
        self.directory.write_folder(self.directory.models / model, self.learner.export)
        problems = self.task.problems(
            "heldout", self.settings.eval_problems, seed=self.settings.seed
        )
        accuracy = await evaluate(
            self.learner.policy,
            self.task,
            problems,
            seed=derive_seed(self.settings.seed, fact),
            services=self._services,
            temperature=self.settings.temperature,
            progress=lambda done, of, mean: self.report.stage(
                stage, done, of, f"accuracy {mean:.3f}"
            ),
        )
        self._ledger.note(fact, {"rounds": rounds, "accuracy": accuracy.to_dict()})
        return accuracy

    async def _pilot(self) -> None:
        """Outcomes for the first round's constant; a wrong one would skew its credit."""
        if self._ledger.fact("pilot") is None:
            problems = self.task.problems(
                "train", self.settings.pilot_problems, seed=derive_seed(self.settings.seed, "pilot")
            )
            found = await evaluate(
                self.learner.policy,
                self.task,
                problems,
                seed=derive_seed(self.settings.seed, "pilot outcomes"),
                services=self._services,
                progress=lambda done, of, mean: self.report.stage("pilot", done, of),
            )
            self._ledger.note("pilot", found.to_dict())
        self._steering.window.first_guess = self._ledger.fact("pilot")["accuracy"]

    async def _round(self, round_index: int) -> None:
        started = time.monotonic()
        problems = self.task.problems(
            "train",
            self.settings.prompts,
            seed=derive_seed(self.settings.seed, "train", round_index),
        )
        attempt = self._ledger.issue(round_index, [problem.key for problem in problems])
        identity = Identity(run=self._name, round=round_index, attempt=attempt)
        collections = await self._collect(problems, identity)
        self._ledger.collected(round_index, attempt)
        collected = time.monotonic()
        trained = await self._update(round_index, collections)
        updated = time.monotonic()
        judged = await self._judge(round_index)
        ended = time.monotonic()
        # A learner that counts what it computes replaces the ledger's eta_learn.
        metrics = {
            **round_metrics(round_index, collections),
            **trained,
            **judged,
            "attempt": attempt,
            "collect_s": round(collected - started, 3),
            "update_s": round(updated - collected, 3),
            "judge_s": round(ended - updated, 3),
            "wall_s": round(ended - started, 3),
        }
        self._accept(round_index, attempt, {**metrics, **self.annotate(metrics)})

    async def _collect(self, problems: Sequence[Problem], identity: Identity) -> list[Collection]:
        """All trees of a round, concurrently; each one's critic records reach the disk."""
        critic = self._steering.critic(self.learner.critic())
        credit = self._steering.credit()
        search = search_of(self.settings)
        seed = derive_seed(self.settings.seed, "collect", identity.round, identity.attempt)
        found: dict[int, Collection] = {}

        async def one(index: int, problem: Problem) -> None:
            collector = make_collector(
                self.learner.policy,
                self.task,
                problem,
                search=search,
                critic=critic,
                credit=credit,
                packing=self.settings.packing,
                seed=seed,
                services=self._services,
            )
            async with collector:
                collection = await collector.collect(problem, identity=identity)
            await anyio.to_thread.run_sync(self._store, index, collection)
            found[index] = collection
            note = f"{sum(c.ledger.tokens_generated for c in found.values())} tokens"
            self.report.stage(f"round {identity.round} collect", len(found), len(problems), note)

        async with siblings() as group:
            for index, problem in enumerate(problems):
                group.start_soon(one, index, problem)
        return [found[index] for index in range(len(problems))]

    def _store(self, index: int, collection: Collection) -> None:
        self._sink.write(collection.critic)
        if index < self.settings.keep_trees:
            identity = collection.tree.header.identity
            folder = self.directory.trees / f"round-{identity.round:04d}"
            folder.mkdir(exist_ok=True)
            save_tree(
                collection.tree,
                folder / f"tree-{index:03d}.json",
                texts=edge_texts(collection.tree, self.learner.policy),
                credit=collection.credit,
                failures=collection.failures,
            )

    async def _update(
        self, round_index: int, collections: Sequence[Collection]
    ) -> dict[str, float]:
        actor = [record for collection in collections for record in collection.actor]
        self._replay.append([r for collection in collections for r in collection.critic])
        critic = [record for records in self._replay for record in records]
        seed = derive_seed(self.settings.seed, "update", round_index)
        self._steering.window.add(collections)
        self.report.stage(f"round {round_index} train", 0, 2, "critic")
        critic_metrics = await _blocking(self.learner.update_critic, critic, seed=seed)
        self.report.stage(f"round {round_index} train", 1, 2, "actor")
        actor_metrics = await _blocking(self.learner.update_actor, actor, seed=seed)
        await _blocking(self.learner.publish, round_index)
        return {**critic_metrics, **actor_metrics}

    async def _judge(self, round_index: int) -> dict[str, Any]:
        """The critic just published, on problems that nobody trained on."""
        last = round_index == self.settings.rounds - 1
        if (round_index + 1) % self.settings.gate.every and not last:
            return {}
        samples = await self._fresh_samples(round_index)
        report = judge(samples, self._steering.window.rates(), z=self.settings.gate.confidence_z)
        self._steering.judged(report, round_index=round_index)
        return judgement_metrics(samples, report)

    async def _fresh_samples(self, round_index: int) -> list[GateSample]:
        """As many checkpoints as a judgement needs; how many a problem gives is not known."""
        samples: list[GateSample] = []
        wave = 0
        wanted = self.settings.gate.checkpoints
        while len(samples) < wanted:
            missing = wanted - len(samples)
            seed = derive_seed(self.settings.seed, "gate", round_index, wave)
            problems = self.task.problems("gate", max(8, missing // 4), seed=seed)
            self.report.stage(f"round {round_index} judge critic", len(samples), wanted)
            samples += await gate_samples(
                self.learner.policy,
                self.learner.critic(),
                self.task,
                problems,
                seed=seed,
                services=self._services,
            )
            wave += 1
        return samples

    def _accept(self, round_index: int, attempt: int, metrics: Mapping[str, Any]) -> None:
        """Checkpoint first, then one transaction that makes the round count."""
        name = f"round-{round_index:04d}-{attempt}"
        self.directory.write_folder(self.directory.checkpoints / name, self._save)
        self._sink.accept(round=round_index, attempt=attempt)
        self._ledger.apply(
            AppliedRound(round_index, attempt, name, self.learner.optimizer_steps, metrics)
        )
        self._metrics.append(metrics)
        self.report.round(metrics)
        self.directory.keep_checkpoints({entry.checkpoint for entry in self._ledger.applied()[-2:]})

    def _save(self, folder: Path) -> None:
        self.learner.save(folder)
        state = {"steering": self._steering.to_dict()}
        (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")

    def _summary(self, before: Accuracy, after: Accuracy) -> dict[str, Any]:
        return run_summary(
            self.settings,
            [entry.metrics for entry in self._ledger.applied()],
            self._steering,
            before=before,
            after=after,
            pilot_tokens=self._ledger.fact("pilot")["tokens"],
            optimizer_steps=self.learner.optimizer_steps,
        )


async def _blocking(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run torch work off the event loop; it is not abandoned half-way."""
    return await anyio.to_thread.run_sync(functools.partial(function, *args, **kwargs))
