"""Agents and collectors of a run, from its task and settings."""

from __future__ import annotations

import copy
import dataclasses

from focus.agent import Agent, Env, Segments
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
    problem: Problem,
    *,
    seed: int,
    services: ExecutionServices,
    temperature: float | None = None,
) -> tuple[Agent, Env]:
    """Who solves a problem of the task, and where.

    Args:
        temperature: another than the trainer's is for evaluation only.
    """
    sampling = Sampling(seed=seed, temperature=temperature)
    if task.collector_for is not None:
        made = task.collector_for(policy, problem)
        return _seated(made.agent, sampling, services), made.env
    agent = Agent(
        policy,
        parser=Segments(task.segment_tokens),
        sampling=sampling,
        allowance=Allowance(tokens=task.allowance_tokens),
        execution=Execution(services=services),
    )
    return agent, task.env_for(problem)


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
    """A collector for one problem of the task; everything passed in is borrowed.

    A task that brings collectors of its own says how to search; critic, credit and packing
    are the run's in any case.
    """
    if task.collector_for is None:
        agent, env = make_agent(policy, task, problem, seed=seed, services=services)
    else:
        made = task.collector_for(policy, problem)
        agent = _seated(made.agent, Sampling(seed=seed), services)
        env, search = made.env, made.search
    return Collector(
        agent=agent,
        env=env,
        search=search,
        critic=critic,
        credit=credit,
        packing=packing,
        own=False,
    )


def _seated(agent: Agent, sampling: Sampling, services: ExecutionServices) -> Agent:
    """The same agent with the run's seed, under the run's permits."""
    seated = copy.copy(agent)
    seated.sampling = agent.sampling.merged(sampling)
    seated.execution = dataclasses.replace(agent.execution, services=services)
    return seated
