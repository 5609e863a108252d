"""Small whole runs: the loop on the real SDK against a service of this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus import Agent, Allowance, Collector, Policy, Problem, Search, Segments
from focus.integrations.tinker import TinkerHost, TinkerSettings, VerdictText, train
from focus.models import BUILTIN
from focus.rendering import load_tokenizer
from focus.tasks import MathEnv
from focus.tasks.registry import load_task
from focus.testing.tinker_service import Done, TinkerService
from focus.training.ledger import RunLedger
from focus.training.settings import ActorSettings, CriticSettings, GateSettings, TrainSettings

CRITIC_STEPS = 2
SMALL = TrainSettings(
    model="builtin",
    rounds=3,
    prompts=2,
    tokens_per_prompt=120,
    pilot_problems=1,
    eval_problems=2,
    keep_trees=1,
    actor=ActorSettings(learning_rate=1e-4, minibatches=1),
    critic=CriticSettings(learning_rate=1e-3, steps=CRITIC_STEPS, batch_contexts=16),
    gate=GateSettings(checkpoints=4, every=99),
)
TINKER = TinkerSettings(rank=8, verdict=VerdictText(suffix="?", yes="y", no="n"))


def collector_for(policy: Policy, problem: Problem) -> Collector:
    return Collector(
        agent=Agent(policy, parser=Segments(12), allowance=Allowance(tokens=96)),
        env=MathEnv(problem.label),
        search=Search.two_phase(tokens=120),
    )


@dataclass
class Heard:
    """What a run told."""

    stages: list[str] = field(default_factory=list)
    rounds: list[Mapping[str, Any]] = field(default_factory=list)

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        self.stages.append(name)

    def round(self, metrics: Mapping[str, Any]) -> None:
        self.rounds.append(metrics)


def host_of(service: TinkerService) -> TinkerHost:
    return TinkerHost(
        base_url=service.url, api_key=service.api_key, tokenizer=load_tokenizer(BUILTIN)
    )


async def run(
    service: TinkerService,
    out: Path,
    *,
    settings: TrainSettings = SMALL,
    heard: Heard | None = None,
) -> dict[str, Any]:
    return await train(
        collector_for,
        task=load_task("demo"),
        settings=settings,
        out=out,
        report=heard or Heard(),
        tinker=TINKER,
        host=host_of(service),
    )


def checkpoints(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "checkpoints.jsonl").read_text().splitlines()]


def attempts(out: Path) -> list[tuple[int, int, str]]:
    with closing(RunLedger(out / "ledger.sqlite")) as ledger:
        return ledger.attempts()


def check_each_round_counts_once(
    service: TinkerService, out: Path, *, rounds: int, steps: int = CRITIC_STEPS
) -> None:
    """The law of every run: states grow by one actor step a round, and none is the same batch.

    A state remembers the batch of every step that made it. So "applied twice" would be a state
    with a step too many, and "skipped" one with a step too few.
    """
    rows = checkpoints(out)
    assert [row["batch"] for row in rows] == list(range(rounds))
    for paths, per_round in (
        ([row["state_path"] for row in rows], 1),
        ([row["extras"]["critic_state_path"] for row in rows], steps),
    ):
        before: tuple[str, ...] = ()
        for path in paths:
            history = service.states[path].history
            assert len(history) == len(before) + per_round
            assert history[: len(before)] == before
            assert all(digest and "+" not in digest for digest in history)
            before = history
        if per_round == 1:
            assert len(set(before)) == rounds


def steps_of(log: tuple[Done, ...], model_id: str) -> list[str]:
    """Training requests of one model, in order."""
    return [done.route for done in log if done.model_id == model_id]


def model_of(path: str) -> str:
    """The training client that a path belongs to."""
    return path.removeprefix("tinker://").partition("/")[0]
