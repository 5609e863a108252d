"""One trial: one method, one task, one seed, up to a budget of generated tokens."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
from bench.learning.books import Books, trained_by_critic
from bench.learning.judging import Judge
from bench.learning.methods import METHODS, Method
from bench.learning.ppo import TokenCritic, TokenValues, reweighted
from bench.learning.tabular.learner import TabularLearner, TokenTable
from bench.learning.tasks import FAMILIES, coarsened, searched

from focus._cancellation import siblings
from focus.collect import Collection
from focus.credit import Credit
from focus.critic import Critic
from focus.critic.surprisal import SurprisalModel
from focus.execution import AdmissionPool, ExecutionServices
from focus.integrations.local import LocalLearner
from focus.records.records import ActorRecord, CriticRecord
from focus.sampling import derive_seed
from focus.training.making import make_collector
from focus.training.settings import ActorSettings, CriticSettings, TrainSettings
from focus.training.solving import evaluate
from focus.training.steering import OutcomeWindow, constant_like
from focus.tree import Identity

__all__ = ("Trial", "TrialSpec", "run_trial")

SURPRISAL_ROUNDS = 24
"""Rounds that a surprisal critic is fitted to; a fit has no memory of its own."""

Point = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """All that decides a trial.

    Attributes:
        task, model, method, seed: what is trained on what, and how; "" is the task's own model.
        learning_rate: of the actor.
        prompts: problems per round.
        minibatches: optimizer steps per round.
        grad_norm: what a step's gradient is clipped to.
        beta2, warmup: of the actor's Adam: how slowly it forgets how large gradients were, and
            in how many steps its rate rises.
        step_kl: how far one of its steps may move the policy; 0 sets no bound.
        tokens_per_prompt: search budget of one problem.
        budget: generated tokens of the whole trial.
        evaluations: held-out measurements, evenly spaced, the first before training.
        eval_problems: problems of each.
        critic_steps, critic_rate, replay: the critic's training per round.
        batch_tokens: padded tokens of one training pass: memory, not results.
        frozen: the policy stays as it is; for figures of a single policy.
    """

    task: str
    model: str = ""
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
    batch_tokens: int = 65536
    grad_norm: float = 1.0
    beta2: float = 0.95
    warmup: int = 0
    step_kl: float = 0.0
    frozen: bool = False

    @property
    def name(self) -> str:
        start = f"@{Path(self.model).name}" if self.model else ""
        return (
            f"{self.task}{start}.{self.method}.lr{self.learning_rate:g}.p{self.prompts}"
            f"m{self.minibatches}.t{self.tokens_per_prompt}.b{self.budget}"
            f"{'' if self.grad_norm == 1.0 else f'.g{self.grad_norm:g}'}"
            f"{'' if self.beta2 == 0.95 else f'.beta{self.beta2:g}'}"
            f"{f'.w{self.warmup}' if self.warmup else ''}"
            f"{f'.kl{self.step_kl:g}' if self.step_kl else ''}"
            f"{'.frozen' if self.frozen else ''}.s{self.seed}"
        )


class Trial:
    """Runs a spec; `points` is its curve.

    Args:
        spec: what to run.
        device: where a network is trained; None takes the GPU when there is one.
        on_point: called with the curve so far after each evaluation.
    """

    def __init__(
        self,
        spec: TrialSpec,
        *,
        device: str | None = None,
        on_point: Callable[[list[Point]], None] = lambda points: None,
    ) -> None:
        self.spec = spec
        self.method: Method = METHODS[spec.method]
        self.task = coarsened(FAMILIES[spec.task].make_task(), self.method.joined)
        # A table takes in a round's targets at once.
        steps = spec.critic_steps if FAMILIES[spec.task].game is None else 1
        self.critic_settings = CriticSettings(
            steps=steps, learning_rate=spec.critic_rate, batch_tokens=spec.batch_tokens
        )
        self.learner = _learner(spec, self.critic_settings, device)
        self.token_values = self._token_values() if self.method.critic == "token" else None
        self.surprisal = SurprisalModel.constant(0.5, version="surprisal-0")
        self.window = OutcomeWindow(spec.replay)
        self.replay: deque[tuple[list[CriticRecord], list[Collection]]] = deque(
            maxlen=SURPRISAL_ROUNDS if self.method.values == "surprisal" else spec.replay
        )
        self.judge = Judge()
        self.points: list[Point] = []
        self.books = Books()
        self.length = 1.0
        self.mixed: list[bool] = []
        self.on_round: list[Callable[[Sequence[ActorRecord], int], None]] = []
        self._on_point = on_point

    def _token_values(self) -> TokenValues:
        if isinstance(self.learner, TabularLearner):
            return TokenTable(self.learner.game)
        return TokenCritic(
            self.spec.model or FAMILIES[self.spec.task].start,
            steps=self.spec.critic_steps,
            rate=self.spec.critic_rate,
            batch_tokens=self.spec.batch_tokens,
            device=self.learner.policy.model.device,
        )

    async def run(self, services: ExecutionServices) -> list[Point]:
        """Train up to the budget; returns the curve."""
        spec, started = self.spec, time.monotonic()
        evaluating, due, index = 0.0, 0.0, 0
        while True:
            if self.books.tokens >= due:
                before = time.monotonic()
                accuracy = await self._accuracy(services)
                evaluating += time.monotonic() - before
                wall_s = round(time.monotonic() - started - evaluating, 2)
                self.points.append(self._point(accuracy, index, wall_s))
                self._on_point(self.points)
                due += spec.budget / (spec.evaluations - 1)
                if self.books.tokens >= spec.budget:
                    return self.points
            collections = await self._batch(index, services)
            await anyio.to_thread.run_sync(self._learn, index, collections)
            index += 1

    def _point(self, accuracy: float, index: int, wall_s: float) -> Point:
        report, mixed = self.judge.report, self.mixed
        self.mixed = []
        return {
            **self.books.to_dict(),
            "accuracy": accuracy,
            "round": index,
            "wall_s": wall_s,
            "prompts": len(mixed),
            "mixed_ratio": sum(mixed) / len(mixed) if mixed else None,
            "gate": None if report is None else report.passed,
            "critic_brier": None if report is None else report.critic_brier,
            "constant_brier": None if report is None else report.constant_brier,
        }

    async def _accuracy(self, services: ExecutionServices) -> float:
        if isinstance(self.learner, TabularLearner):
            accuracy, self.length = self.learner.success, float(self.learner.game.horizon)
        else:
            found = await evaluate(
                self.learner.policy,
                self.task,
                self.task.problems("heldout", self.spec.eval_problems, seed=99),
                seed=derive_seed(self.spec.seed, "eval", len(self.points)),
                services=services,
            )
            accuracy, self.length = found.accuracy, found.tokens / found.n
        if not self.points:
            self.window.first_guess = accuracy
            self.surprisal = SurprisalModel.constant(accuracy, version="surprisal-0")
        return accuracy

    @property
    def steers(self) -> bool:
        kind, report = self.method.critic, self.judge.report
        return kind == "free" or (kind == "learned" and report is not None and report.passed)

    async def _batch(self, index: int, services: ExecutionServices) -> list[Collection]:
        """The prompts of an update: those of one draw, or informative ones of several."""
        refills, wanted = self.method.refills, self.spec.prompts
        collections = await self._collect(index, services)
        if refills is None:
            return collections
        kept = [collection for collection in collections if informs(collection.credit)]
        for draw in range(1, refills + 1):
            if len(kept) >= wanted:
                break
            again = await self._collect(index, services, draw=draw)
            kept += [collection for collection in again if informs(collection.credit)]
        return kept[:wanted]

    async def _collect(
        self, index: int, services: ExecutionServices, *, draw: int = 0
    ) -> list[Collection]:
        spec, method = self.spec, self.method
        named = ("train", index, draw) if draw else ("train", index)
        problems = self.task.problems("train", spec.prompts, seed=derive_seed(spec.seed, *named))
        critic = self.critic()
        if not self.steers:
            critic = constant_like(critic, self.window.rates())
        warm = method.warm_credit is not None and not self.steers
        credit = method.warm_credit if warm else method.credit
        assert credit is not None
        found: dict[int, Collection] = {}
        identity = Identity(run=f"bench-{spec.seed}", round=index, attempt=draw)
        search = method.search(spec.tokens_per_prompt, self.length)
        task = searched(self.task, search)

        async def one(number: int) -> None:
            collector = make_collector(
                self.learner.policy,
                task,
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
            self.books.enter(collection.ledger, steered=self.steers)
        self.mixed += map(is_mixed, collections)
        if method.critic in ("learned", "free"):
            self.books.critic_read += sum(c.ledger.tokens_distinct for c in collections)
            await self.judge.hear(
                collections,
                self.critic(),
                policy=self.learner.policy,
                rates=self.window.rates(),
            )
        return collections

    def _learn(self, index: int, collections: Sequence[Collection]) -> None:
        seed = derive_seed(self.spec.seed, "update", index)
        self.window.add(collections)
        if self.method.critic in ("learned", "free"):
            self._learn_values(collections, seed)
        records: Sequence[ActorRecord] = [r for c in collections for r in c.actor]
        if self.token_values is not None:
            records = self._reweighted(self.token_values, records, seed)
        for listener in self.on_round:
            listener(records, self.books.tokens)
        if not self.spec.frozen:
            self.learner.update_actor(records, seed=seed)
        self.learner.publish(index)

    def critic(self) -> Critic:
        """The learned critic as it stands."""
        if self.method.values == "surprisal":
            return Critic.local(self.surprisal)
        return self.learner.critic()

    def _learn_values(self, collections: Sequence[Collection], seed: int) -> None:
        self.replay.append(([r for c in collections for r in c.critic], list(collections)))
        records = [r for batch, _ in self.replay for r in batch]
        trees = [collection for _, batch in self.replay for collection in batch]
        if self.method.values == "surprisal":
            version = f"surprisal-{len(self.points)}-{seed}"
            self.surprisal = self.surprisal.fitted(records, version=version)
            return
        self.learner.update_critic(records, seed=seed)
        self.books.critic_trained += trained_by_critic(trees, len(records), self.critic_settings)

    def _reweighted(
        self, critic: TokenValues, records: Sequence[ActorRecord], seed: int
    ) -> list[ActorRecord]:
        tokens = sum(len(record.tokens) for record in records)
        values = critic.values(records)
        fresh, targets = reweighted(records, values, decay=self.method.token_decay)
        critic.update(records, targets, seed=seed)
        self.books.critic_read += tokens
        self.books.critic_trained += self.critic_settings.steps * tokens // 8
        return fresh


def _learner(
    spec: TrialSpec, critic: CriticSettings, device: str | None
) -> LocalLearner | TabularLearner:
    family = FAMILIES[spec.task]
    actor = ActorSettings(
        learning_rate=spec.learning_rate,
        minibatches=spec.minibatches,
        grad_norm=spec.grad_norm,
        betas=(0.9, spec.beta2),
        warmup=spec.warmup,
        step_kl=spec.step_kl,
        batch_tokens=spec.batch_tokens,
    )
    if family.game is not None:
        return TabularLearner(family.game, actor)
    settings = TrainSettings(
        model=spec.model or family.start,
        seed=spec.seed,
        capacity=512,
        actor=actor,
        critic=critic,
    )
    return LocalLearner(settings, device=device, profile=family.profile)


def is_mixed(collection: Collection) -> bool:
    """Whether the finished leaves of a prompt ended differently."""
    return len({collection.tree.outcome(node) for node in collection.tree.terminals()}) > 1


def informs(credit: Credit) -> bool:
    """Whether any edge has a weight; in a group of equal outcomes none has."""
    return any(credit.advantages.values())


async def run_trial(spec: TrialSpec, out: Path, *, device: str | None = None) -> None:
    """Run one trial; ``out`` holds its curve, ``.partial`` beside it what it has meanwhile."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".partial")

    def keep(points: list[Point]) -> None:
        curve = {"spec": dataclasses.asdict(spec), "points": points}
        scratch = out.with_suffix(".writing")
        scratch.write_text(json.dumps(curve))
        scratch.replace(partial)

    trial = Trial(spec, device=device, on_point=keep)
    try:
        async with ExecutionServices(AdmissionPool(512)) as services:
            await trial.run(services)
    finally:
        await trial.learner.aclose()
    partial.replace(out)
