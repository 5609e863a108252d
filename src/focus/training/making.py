"""Agents and collectors of a run, from its task and settings."""

from __future__ import annotations

from focus.agent import Agent, Segments
from focus.checkpoint import Allowance
from focus.collect import Collector
from focus.credit.base import Estimator
from focus.critic import Critic
from focus.execution import Execution, ExecutionServices
from focus.policies.base import Policy
from focus.problem import Problem
from focus.records import Packing
from focus.sampling import Sampling
from focus.search import Search
from focus.tasks.registry import Task

__all__ = ("make_agent", "make_collector")


def make_agent(
    policy: Policy,
    task: Task,
    *,
    seed: int,
    services: ExecutionServices,
    temperature: float | None = None,
) -> Agent:
    """The task's agent; `temperature` other than the trainer's is for evaluation only."""
    return Agent(
        policy,
        parser=Segments(task.segment_tokens),
        sampling=Sampling(seed=seed, temperature=temperature),
        allowance=Allowance(tokens=task.allowance_tokens),
        execution=Execution(services=services),
    )


def make_collector(
    policy: Policy,
    task: Task,
    problem: Problem,
    *,
    search: Search,
    critic: Critic,
    credit: Estimator,
    packing: Packing,
    seed: int,
    services: ExecutionServices,
) -> Collector:
    """A collector for one problem of the task; everything passed in is borrowed."""
    return Collector(
        agent=make_agent(policy, task, seed=seed, services=services),
        env=task.env_for(problem),
        search=search,
        critic=critic,
        credit=credit,
        packing=packing,
        own=False,
    )
