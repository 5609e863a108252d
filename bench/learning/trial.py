"""One trial: one method, one task, one seed, up to a budget of generated tokens."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
from bench.learning.methods import METHODS, Method
from bench.learning.tasks import bench_task

from focus._cancellation import siblings
from focus.collect import Collection, Ledger
from focus.critic import Critic, render_context
from focus.execution import AdmissionPool, ExecutionServices
from focus.integrations.local import LocalLearner
from focus.records.records import CriticRecord
from focus.sampling import derive_seed
from focus.training.gate import GateReport, GateSample, judge
from focus.training.making import make_collector
from focus.training.settings import ActorSettings, CriticSettings, TrainSettings
from focus.training.solving import evaluate
from focus.training.steering import OutcomeWindow
from focus.tree import Identity

__all__ = ("Trial", "TrialSpec", "run_trial")

LEAST_SAMPLES = 200
"""Checkpoints of two rounds; the product wants 500, which small rounds here do not reach."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """All that decides a trial.

    Attributes:
        task, model, method, seed: what is trained on what, and how.
        learning_rate: of the actor.
        prompts: problems per round.
        minibatches: optimizer steps per round.
        tokens_per_prompt: search budget of one problem.
        budget: generated tokens of the whole trial.
        evaluations: held-out measurements, evenly spaced, the first before training.
        eval_problems: problems of each.
        critic_steps, critic_rate, replay: the critic's training per round.
    """

    task: str
    model: str
    method: str
    seed: int = 0
    learning_rate: float = 1e-4
    prompts: int = 24
    minibatches: int = 4
    tokens_per_prompt: int = 640
    budget: int = 300_000
    evaluations: int = 10
    eval_problems: int = 256
    critic_steps: int = 24
    critic_rate: float = 1e-3
    replay: int = 2

    @property
    def name(self) -> str:
        return (
            f"{self.task}.{self.method}.lr{self.learning_rate:g}.p{self.prompts}"
            f"m{self.minibatches}.s{self.seed}"
        )


class Trial:
    """Runs a spec; `points` is its curve."""

    def __init__(self, spec: TrialSpec, *, device: str | None = None) -> None:
        self.spec = spec
        self.method: Method = METHODS[spec.method]
        self.task = bench_task(spec.task)
        settings = TrainSettings(
            model=spec.model,
            seed=spec.seed,
            capacity=512,
            actor=ActorSettings(
                learning_rate=spec.learning_rate, minibatches=spec.minibatches, batch_tokens=65536
            ),
            critic=CriticSettings(
                steps=spec.critic_steps, learning_rate=spec.critic_rate, batch_tokens=65536
            ),
        )
        self.learner = LocalLearner(settings, device=device)
        self.window = OutcomeWindow(spec.replay)
        self.replay: deque[list[CriticRecord]] = deque(maxlen=spec.replay)
        self.fresh: deque[list[GateSample]] = deque(maxlen=2)
        self.report: GateReport | None = None
        self.points: list[dict[str, Any]] = []
        self.books = {"tokens": 0, "prefill": 0, "critic_calls": 0, "learner": 0}
        self.length = 1.0

    async def run(self, services: ExecutionServices) -> list[dict[str, Any]]:
        """Train up to the budget; returns the curve."""
        spec, started = self.spec, time.monotonic()
        evaluating, due, index = 0.0, 0.0, 0
        mixed: list[bool] = []
        while True:
            if self.books["tokens"] >= due:
                before = time.monotonic()
                accuracy = await self._accuracy(services)
                evaluating += time.monotonic() - before
                wall_s = round(time.monotonic() - started - evaluating, 2)
                self.points.append(self._point(accuracy, index, wall_s, mixed))
                mixed = []
                due += spec.budget / (spec.evaluations - 1)
                if self.books["tokens"] >= spec.budget:
                    return self.points
            collections = await self._collect(index, services)
            mixed += map(_is_mixed, collections)
            await anyio.to_thread.run_sync(self._learn, index, collections)
            index += 1

    def _point(
        self, accuracy: float, index: int, wall_s: float, mixed: Sequence[bool]
    ) -> dict[str, Any]:
        report = self.report
        return {
            **self.books,
            "accuracy": accuracy,
            "round": index,
            "wall_s": wall_s,
            "mixed_ratio": sum(mixed) / len(mixed) if mixed else None,
            "gate": None if report is None else report.passed,
            "critic_brier": None if report is None else report.critic_brier,
            "constant_brier": None if report is None else report.constant_brier,
        }

    async def _accuracy(self, services: ExecutionServices) -> float:
        problems = self.task.problems("heldout", self.spec.eval_problems, seed=99)
        found = await evaluate(
            self.learner.policy,
            self.task,
            problems,
            seed=derive_seed(self.spec.seed, "eval", len(self.points)),
            services=services,
        )
        self.length = found.tokens / found.n
        if not self.points:
            self.window.first_guess = found.accuracy
        return found.accuracy

    @property
    def steers(self) -> bool:
        kind = self.method.critic
        return kind == "free" or (
            kind == "learned" and self.report is not None and self.report.passed
        )

    async def _collect(self, index: int, services: ExecutionServices) -> list[Collection]:
        spec, method = self.spec, self.method
        problems = self.task.problems(
            "train", spec.prompts, seed=derive_seed(spec.seed, "train", index)
        )
        constant = Critic.constant(round(self.window.rates().constant, 6))
        critic = self.learner.critic() if self.steers else constant
        warm = method.warm_credit is not None and not self.steers
        credit = method.warm_credit if warm else method.credit
        assert credit is not None
        found: dict[int, Collection] = {}
        identity = Identity(run=f"bench-{spec.seed}", round=index)
        search = method.search(spec.tokens_per_prompt, self.length)

        async def one(number: int) -> None:
            collector = make_collector(
                self.learner.policy,
                self.task,
                problems[number],
                search=search,
                critic=critic,
                credit=credit,
                packing="path",
                seed=derive_seed(spec.seed, "collect", index),
                services=services,
            )
            async with collector:
                found[number] = await collector.collect(problems[number], identity=identity)

        async with siblings() as group:
            for number in range(len(problems)):
                group.start_soon(one, number)
        collections = [found[number] for number in range(len(problems))]
        for collection in collections:
            self._enter(collection.ledger, learned=critic is not constant)
        if method.critic != "none":
            await self._judge(collections)
        return collections

    def _enter(self, ledger: Ledger, *, learned: bool) -> None:
        self.books["tokens"] += ledger.tokens_generated
        self.books["prefill"] += ledger.tokens_submitted - (ledger.tokens_cached or 0)
        self.books["learner"] += ledger.tokens_learner
        if learned:
            self.books["critic_calls"] += ledger.critic_calls

    async def _judge(self, collections: Sequence[Collection]) -> None:
        """The critic against outcomes of problems it has not been trained on, free of charge."""
        samples: list[GateSample] = []
        critic = self.learner.critic()
        contexts, places = [], []
        for collection in collections:
            tree = collection.tree
            for node_id, outcome in _opening_suffixes(collection):
                payload = tree[node_id].payload
                places.append((tree.header.problem.key, tree[node_id].depth, outcome))
                contexts.append(render_context(critic.renderer, self.learner.policy, payload))
        values = await critic.score(contexts)
        for (key, depth, outcome), value in zip(places, values, strict=True):
            samples.append(GateSample(key, depth, value, outcome))
        self.fresh.append(samples)
        pooled = [sample for batch in self.fresh for sample in batch]
        if pooled:
            self.report = judge(pooled, self.window.rates(), least_samples=LEAST_SAMPLES)

    def _learn(self, index: int, collections: Sequence[Collection]) -> None:
        seed = derive_seed(self.spec.seed, "update", index)
        self.window.add(collections)
        if self.method.critic != "none":
            self.replay.append([r for c in collections for r in c.critic])
            records = [r for batch in self.replay for r in batch]
            self.learner.update_critic(records, seed=seed)
        self.learner.update_actor([r for c in collections for r in c.actor], seed=seed)
        self.learner.publish(index)


def _opening_suffixes(collection: Collection) -> list[tuple[int, float]]:
    """Checkpoints of rollouts that no result could select, each with the outcome it led to."""
    tree = collection.tree
    opening = {s.expansion for s in tree.selections[: collection.opening] if s.node == 0}
    chains: dict[int, list[int]] = {}
    for node in tree.edges():
        if node.incoming.provenance.expansion in opening:
            chains.setdefault(node.incoming.provenance.expansion, []).append(node.id)
    samples = []
    for chain in chains.values():
        if tree[chain[-1]].is_terminal:
            outcome = tree.outcome(chain[-1])
            samples += [(node_id, outcome) for node_id in (0, *chain[:-1])]
    return samples


def _is_mixed(collection: Collection) -> bool:
    return len({collection.tree.outcome(node) for node in collection.tree.terminals()}) > 1


async def run_trial(spec: TrialSpec, out: Path, *, device: str | None = None) -> None:
    """Run one trial and write its curve, whole or not at all."""
    trial = Trial(spec, device=device)
    try:
        async with ExecutionServices(AdmissionPool(512)) as services:
            points = await trial.run(services)
    finally:
        await trial.learner.aclose()
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".partial")
    partial.write_text(json.dumps({"spec": dataclasses.asdict(spec), "points": points}))
    partial.replace(out)
