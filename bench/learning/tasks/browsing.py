"""A multi-turn tool task: the shipped browsing model over its library of made-up documents."""

from __future__ import annotations

from functools import cache

from bench.learning.tasks.family import Family

from focus.collect import Collector
from focus.policies.base import Policy
from focus.problem import Problem
from focus.search import Search
from focus.tasks.arithmetic import Split
from focus.tasks.browse import Library, WordCounts, World
from focus.tasks.browse.habits import browsing_agent
from focus.tasks.registry import Task

__all__ = ("BROWSING",)

TRAINED_WORLD, HELD_OUT_WORLD = 0, 1
REPLY_TOKENS = 48


@cache
def _library(split: Split) -> Library:
    world = World.draw(TRAINED_WORLD if split == "train" else HELD_OUT_WORLD)
    return Library(world, ranking=WordCounts)


def _draw(split: Split, count: int, seed: int) -> tuple[Problem, ...]:
    return tuple(_library(split).world.problems(count, seed=seed, split=split))


def _collector(policy: Policy, problem: Problem) -> Collector:
    split: Split = "train" if str(problem.id).split("-")[1] == str(TRAINED_WORLD) else "heldout"
    return Collector(
        agent=browsing_agent(policy, seed=0),
        env=_library(split).env(problem),
        search=Search.flat(1),
    )


def _task() -> Task:
    return Task(
        name="browse",
        segment_tokens=REPLY_TOKENS,
        allowance_tokens=20 * REPLY_TOKENS,
        draw=_draw,
        make_env=lambda problem: _library("train").env(problem),
        collector_for=_collector,
    )


BROWSING = {"browse": Family(make_task=_task, start="agent", profile="hermes")}
