"""Unbranched solutions of many problems: accuracy, and fresh outcomes for the critic's gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from focus._cancellation import siblings
from focus.agent import Agent, Env
from focus.agent.env import released_on_failure
from focus.collect import Collector, release_steps, rollout
from focus.critic import Critic, render_context
from focus.execution import ExecutionServices
from focus.policies.base import Policy
from focus.problem import Problem
from focus.records.records import CriticContext
from focus.search import Search
from focus.tasks.quality import wilson
from focus.tasks.registry import Task
from focus.training.gate import GateSample
from focus.training.making import make_agent
from focus.tree import Identity

__all__ = ("Accuracy", "FreshOutcome", "evaluate", "fresh_outcomes", "gate_samples")

Progress = Callable[[int, int, float], None]
"""Called with (done, total, mean outcome so far)."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Mean outcome of unbranched solutions.

    Attributes:
        accuracy: mean outcome over all n, truncated ones included.
        ci95: low and high end of its 95 % interval: Wilson's where every outcome is 0 or 1,
            else the normal one from the sample variance.
        n: problems solved, once each.
        tokens: ids sampled.
        truncated: solutions that ran out of allowance or context.
    """

    accuracy: float
    ci95: tuple[float, float]
    n: int
    tokens: int
    truncated: int

    @classmethod
    def of(cls, outcomes: Sequence[float], *, tokens: int, truncated: int) -> Accuracy:
        """From one outcome per problem.

        >>> [round(end, 3) for end in Accuracy.of([1.0, 0.0] * 200, tokens=0, truncated=0).ci95]
        [0.451, 0.549]
        >>> [round(end, 3) for end in Accuracy.of([1.0] * 400, tokens=0, truncated=0).ci95]
        [0.99, 1.0]
        """
        n = len(outcomes)
        return cls(
            accuracy=sum(outcomes) / n,
            ci95=_interval(outcomes),
            n=n,
            tokens=tokens,
            truncated=truncated,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "ci95": list(self.ci95),
            "n": self.n,
            "tokens": self.tokens,
            "truncated": self.truncated,
        }


def _interval(outcomes: Sequence[float]) -> tuple[float, float]:
    n, total = len(outcomes), sum(outcomes)
    if all(outcome in (0.0, 1.0) for outcome in outcomes):
        return wilson(int(total), n)
    mean = total / n
    variance = sum((y - mean) ** 2 for y in outcomes) / max(1, n - 1)
    half = 1.96 * math.sqrt(variance / n)
    return (max(0.0, mean - half), min(1.0, mean + half))


async def evaluate(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    *,
    seed: int,
    services: ExecutionServices,
    temperature: float | None = None,
    progress: Progress | None = None,
) -> Accuracy:
    """Solve each problem once, unbranched, through the same agent as training.

    Raises:
        RequestError, EnvError, GraderError: one solution could not be finished; it is not
            counted as wrong.
    """
    outcomes: dict[int, float] = {}
    tokens = truncated = 0
    identity = Identity(run=f"eval-{seed}")

    async def solve(index: int, problem: Problem) -> None:
        nonlocal tokens, truncated
        agent, env = make_agent(
            policy, task, problem, seed=seed, services=services, temperature=temperature
        )
        collector = Collector(agent=agent, env=env, search=Search.flat(rollouts=1), own=False)
        async with collector:
            solution = await collector.evaluate(problem, identity=identity)
        outcomes[index] = solution.outcome
        tokens += solution.tokens
        truncated += solution.truncated
        if progress is not None:
            progress(len(outcomes), len(problems), sum(outcomes.values()) / len(outcomes))

    async with siblings() as group:
        for index, problem in enumerate(problems):
            group.start_soon(solve, index, problem)
    in_order = [outcomes[index] for index in range(len(problems))]
    return Accuracy.of(in_order, tokens=tokens, truncated=truncated)


@dataclass(frozen=True, slots=True)
class FreshOutcome:
    """A checkpoint of a fresh rollout, and what one more unbranched continuation came to.

    Attributes:
        problem: which no model should have trained on.
        depth: edges from the root.
        context: what the critic read.
        value: the critic's.
        outcome: of the continuation; drawn apart from the rollout that made the checkpoint.
    """

    problem: Problem
    depth: int
    context: CriticContext
    value: float
    outcome: float


async def gate_samples(
    policy: Policy,
    critic: Critic,
    task: Task,
    problems: Sequence[Problem],
    *,
    seed: int,
    services: ExecutionServices,
) -> list[GateSample]:
    """Fresh outcomes as the gate reads them."""
    found = await fresh_outcomes(policy, critic, task, problems, seed=seed, services=services)
    return [GateSample(one.problem.key, one.depth, one.value, one.outcome) for one in found]


async def fresh_outcomes(
    policy: Policy,
    critic: Critic,
    task: Task,
    problems: Sequence[Problem],
    *,
    seed: int,
    services: ExecutionServices,
) -> list[FreshOutcome]:
    """Checkpoints of fresh rollouts, each with a fresh outcome and the critic's value.

    Per problem: one unbranched rollout gives its checkpoints (root included, terminal not);
    from each, one more unbranched continuation gives the outcome y.
    """
    found: dict[int, list[FreshOutcome]] = {}

    async def visit(index: int, problem: Problem) -> None:
        agent, env = make_agent(policy, task, problem, seed=seed, services=services)
        found[index] = await _visit(agent, env, critic, problem, name=f"gate-{seed}")

    async with siblings() as group:
        for index, problem in enumerate(problems):
            group.start_soon(visit, index, problem)
    return [outcome for index in range(len(problems)) for outcome in found[index]]


async def _visit(
    agent: Agent, env: Env, critic: Critic, problem: Problem, *, name: str
) -> list[FreshOutcome]:
    name = f"{name}/{problem.key}"
    root = await agent.start(problem, env)
    outcomes = []
    async with released_on_failure(env) as held:
        held.add(root)
        steps = await rollout(agent, env, root, name=name)
        for step in steps:
            held.add(step.checkpoint)
        checkpoints = [root, *(step.checkpoint for step in steps if not step.is_terminal)]
        for depth, checkpoint in enumerate(checkpoints):
            again = await rollout(agent, env, checkpoint, name=f"{name}/again-{depth}")
            outcomes.append(again[-1].edge.reward)
            await release_steps(env, again)
    await held.release(env)
    contexts = [render_context(critic.renderer, agent.policy, c) for c in checkpoints]
    values = await critic.score(contexts)
    columns = enumerate(zip(contexts, values, outcomes, strict=True))
    return [
        FreshOutcome(problem, depth, context, value, outcome)
        for depth, (context, value, outcome) in columns
    ]
