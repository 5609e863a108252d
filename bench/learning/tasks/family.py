"""What the bench asks of a family of problems, beyond the task itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.learning.tabular.game import Game

from focus.collect import Collector
from focus.policies.base import Policy
from focus.problem import Message, Problem
from focus.search import Search
from focus.tasks.registry import Task

__all__ = ("Family", "coarsened", "searched")


@dataclass(frozen=True, kw_only=True)
class Family:
    """A task, the model that trials of it start from, and a demonstrator for that model.

    Attributes:
        make_task: the task; called once per trial.
        start: the model of trials that name none; "" where no network is trained.
        profile: how that model's conversations are rendered.
        messages: the conversation that a solver sees.
        demonstrate: a solution with the demonstrator's habits; None where `start` is a
            shipped model that needs no teaching.
        game: where the policy is a table: the game that it plays.
    """

    make_task: Callable[[], Task]
    start: str = "builtin"
    profile: str = "token_chunk"
    messages: Callable[[Problem], tuple[Message, ...]] | None = None
    demonstrate: Callable[[Problem, random.Random], str] | None = None
    game: Game | None = None


def coarsened(task: Task, joined: int) -> Task:
    """The task with so many of its segments to an edge; turns stay turns."""
    return replace(task, segment_tokens=min(joined * task.segment_tokens, task.allowance_tokens))


def searched(task: Task, search: Search) -> Task:
    """The task with this search in the collectors that it brings; others take any search."""
    brought = task.collector_for
    if brought is None:
        return task

    def collector_for(policy: Policy, problem: Problem) -> Collector:
        made = brought(policy, problem)
        return Collector(agent=made.agent, env=made.env, search=search)

    return replace(task, collector_for=collector_for)
