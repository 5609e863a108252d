"""The loop: collect, forward_backward and optim_step, save, snapshot, next round.

It is `focus.training`'s loop with a learner at Tinker: the same ledger, warm-up, gate and
metrics. What is added is how it goes on after a failure, and the files that Tinker's users
expect in the run's folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from focus._extras import require
from focus.collect import Collector
from focus.errors import ConfigError, FatalError, FocusError, TrainerError
from focus.integrations.tinker.audit import LogProbAudit, require_training_law
from focus.integrations.tinker.learner import TinkerLearner
from focus.integrations.tinker.metrics import cookbook_metrics, write_checkpoints
from focus.integrations.tinker.settings import TinkerHost, TinkerSettings, check_settings
from focus.policies.base import Policy
from focus.policies.tinker_faults import classify_tinker
from focus.policies.tinker_models import ServedModel, served_model
from focus.problem import Message, Problem
from focus.tasks.registry import Task
from focus.training.ledger import RunLedger
from focus.training.run import Reporter, TrainingRun
from focus.training.rundir import RunDirectory
from focus.training.settings import TrainSettings

__all__ = ("CollectorFor", "train")

CollectorFor = Callable[[Policy, Problem], Collector]

_GOODBYE_S = 10.0
_RECOVERIES = 3
"""Failures in a row without a round between them, before the run gives up."""


async def train(
    collector_for: CollectorFor,
    *,
    task: Task,
    settings: TrainSettings,
    out: Path,
    report: Reporter,
    tinker: TinkerSettings | None = None,
    host: TinkerHost | None = None,
) -> dict[str, Any]:
    """Train actor and critic at Tinker; returns the summary.

    A folder that holds this run already is gone on with, from the last round that counts.
    A failure at Tinker in the middle of a round leaves weights that nobody knows: they are
    dropped, new clients are made from the last saved state, and the round is collected
    again under another attempt. So each round is applied once.

    Args:
        collector_for: (policy, problem) → a collector; its agent, environment and search are
            used. Critic and credit are the run's: a constant and mean outcomes until the
            critic has passed its gate, the learned one and direct branches from then on.
        task: where problems come from.
        settings: rounds, rates, sizes; see `TINKER_DEFAULTS`.
        out: the run's folder.
        report: hears of progress.
        tinker: rank, loss, verdict.
        host: address, key, tokenizer; None leaves all to the SDK.

    Raises:
        ConfigError: Tinker or the model cannot do what the settings say, or log-probs do not
            mean what training takes them for.
        TrainerError, RequestError, CollectionFailed: it failed several times in a row; call
            again to go on.
        StoreError: the folder is in use, foreign, or cannot be written.
    """
    check_settings(settings)
    job = _Job(
        task=dataclasses.replace(task, collector_for=collector_for),
        settings=settings,
        tinker=tinker or TinkerSettings(),
        host=host or TinkerHost(),
        directory=_directory(out),
        report=report,
    )
    return await job.run()


def _directory(out: Path) -> RunDirectory:
    directory = RunDirectory(out)
    return RunDirectory.reopen(out) if directory.ledger.exists() else RunDirectory.create(out)


@dataclasses.dataclass(kw_only=True)
class _Job:
    task: Task
    settings: TrainSettings
    tinker: TinkerSettings
    host: TinkerHost
    directory: RunDirectory
    report: Reporter
    failures: list[str] = dataclasses.field(default_factory=list)

    async def run(self) -> dict[str, Any]:
        """Attempts until one gets to the end, or too many fail at the same round."""
        in_a_row, rounds = 0, len(self._applied())
        while True:
            model = await self._served()
            try:
                return await self._attempt(model)
            except Exception as error:
                done = len(self._applied())
                in_a_row = in_a_row + 1 if done == rounds else 1
                rounds = done
                if in_a_row > _RECOVERIES or not _is_lost(error):
                    raise
                self.failures.append(f"round {done}: {error}")
                self.report.stage("start over from the last saved state", in_a_row, _RECOVERIES)

    async def _served(self) -> ServedModel:
        """Facts about the base model; a wrong key or address shows here."""
        with _named():
            rest = await anyio.to_thread.run_sync(self.host.rest)
            model = await served_model(self.settings.model, rest_client=rest)
        if not (model.trainable and model.sampleable):
            raise ConfigError(f"this Tinker service does not train {model.name!r}")
        return model

    async def _attempt(self, model: ServedModel) -> dict[str, Any]:
        """One session at Tinker."""
        async with _session(self.host) as service:
            learner = TinkerLearner(
                service,
                self.settings,
                self.tinker,
                tokenizer=await self._tokenizer(service),
                context_limit=model.context_limit,
            )
            audit = await self._audited(learner)
            observed = _Observed(self.report, self.directory, self._applied())
            training = TrainingRun(
                settings=self.settings,
                task=self.task,
                learner=learner,
                directory=self.directory,
                report=observed,
                annotate=partial(self._annotated, learner),
            )
            summary = await training.run()
        return self._finished(summary, learner, audit)

    async def _tokenizer(self, service: Any) -> Any:
        """The host's, else what the SDK loads for the base model."""
        if self.host.tokenizer is not None:
            return self.host.tokenizer

        def loaded() -> Any:
            client = service.create_sampling_client(base_model=self.settings.model).result()
            try:
                return client.get_tokenizer()
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"the SDK has no tokenizer for {self.settings.model!r} ({error}); give one "
                    "with TinkerHost(tokenizer=...)"
                ) from error

        with _named():
            return await anyio.to_thread.run_sync(loaded)

    async def _audited(self, learner: TinkerLearner) -> LogProbAudit:
        await anyio.to_thread.run_sync(learner.open)
        policy = learner.policy
        prompt = policy.render((Message("user", "Compute 17 + 25 - 8."),))
        return await require_training_law(
            policy,
            prompt,
            temperature=self.settings.temperature,
            most_gap=self.tinker.most_gap,
        )

    def _annotated(self, learner: TinkerLearner, metrics: Mapping[str, Any]) -> dict[str, Any]:
        paths = {f"tinker/{kind}": path for kind, path in learner.paths.items()}
        return {**cookbook_metrics(metrics, rounds=self.settings.rounds), **paths}

    def _finished(
        self, summary: Mapping[str, Any], learner: TinkerLearner, audit: LogProbAudit
    ) -> dict[str, Any]:
        whole = {
            **summary,
            "sdk_version": require("tinker", extra="tinker").__version__,
            "log_prob_gap": dataclasses.asdict(audit),
            "paths": dict(learner.paths),
            "recovered": self.failures,
        }
        self.directory.write_json(self.directory.summary, whole)
        return whole

    def _applied(self) -> list[Mapping[str, Any]]:
        """Metrics of the rounds that count."""
        if not self.directory.ledger.exists():
            return []
        with closing(RunLedger(self.directory.ledger)) as ledger:
            return [entry.metrics for entry in ledger.applied()]


class _Observed:
    """Keeps ``checkpoints.jsonl`` beside what it passes on."""

    def __init__(
        self, inner: Reporter, directory: RunDirectory, applied: Sequence[Mapping[str, Any]]
    ) -> None:
        self._inner = inner
        self._path = directory.root / "checkpoints.jsonl"
        self._rounds = list(applied)
        write_checkpoints(self._path, self._rounds)

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        self._inner.stage(name, done, total, note)

    def round(self, metrics: Mapping[str, Any]) -> None:
        self._rounds.append(metrics)
        write_checkpoints(self._path, self._rounds)
        self._inner.round(metrics)


@asynccontextmanager
async def _session(host: TinkerHost) -> AsyncIterator[Any]:
    """A service client that is closed, with the reason, whatever happens."""
    service = host.service()
    reason = "interrupted"
    try:
        yield service
        reason = "success"
    except Exception:
        reason = "errored"
        raise
    finally:
        # A service that is gone needs no goodbye, and must not hide why it is missed.
        away = require("tinker", extra="tinker").TinkerError
        with anyio.move_on_after(_GOODBYE_S, shield=True), suppress(away):
            await service.close(reason)


@contextmanager
def _named() -> Iterator[None]:
    """Errors of the SDK as ours."""
    try:
        yield
    except FocusError:
        raise
    except Exception as error:
        raise classify_tinker(error) from error


def _is_lost(error: BaseException | None) -> bool:
    """Whether what failed is Tinker's side of the session, which a new session may have back."""
    while error is not None:
        if isinstance(error, TrainerError | FatalError):
            return True
        error = error.__cause__
    return False
