"""Hooks over a task without a model: a scripted walk instead of what Slime serves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from focus import (
    Agent,
    Allowance,
    Collector,
    Critic,
    Execution,
    Policy,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
)
from focus.credit.base import Estimator
from focus.records.records import CriticContext
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy

from .host.sample import Sample

__all__ = ("STEPS", "Walks", "hook_module", "prompt")

STEPS = 12


async def by_height(contexts: Sequence[CriticContext]) -> list[float]:
    heights = [c.text.count("+") - c.text.count("-") for c in contexts]
    return [min(0.95, max(0.05, 0.5 + 0.1 * height)) for height in heights]


class Walks:
    """A `collector_for` that keeps what it made, for tests to look into."""

    def __init__(
        self,
        *,
        policy: Callable[[], Any] = lambda: ScriptedPolicy(walk_script(STEPS)),
        env: Callable[[], Any] = WalkEnv,
        sampling: Sampling | None = None,
        search: Search | None = None,
        credit: Estimator | None = None,
        allowance: int = STEPS + 1,
        **options: Any,
    ) -> None:
        self._policy, self._env, self._sampling = policy, env, sampling
        self._search = search or Search.two_phase(tokens=200, concurrency=4)
        self._credit, self._allowance, self._options = credit, allowance, options
        self.given: list[tuple[Policy, Problem]] = []
        self.policies: list[Any] = []

    @property
    def requests(self) -> int:
        return sum(policy.requests for policy in self.policies)

    def __call__(self, policy: Policy, problem: Problem) -> Collector:
        self.given.append((policy, problem))
        self.policies.append(self._policy())
        agent = Agent(
            self.policies[-1],
            parser=Segments(3),
            sampling=self._sampling,
            allowance=Allowance(tokens=self._allowance),
            execution=Execution(retry=RetryPolicy(base_s=0.0)),
        )
        return Collector(
            agent=agent,
            env=self._env(),
            search=self._search,
            critic=Critic.function(by_height, version="height/1"),
            credit=self._credit,
            **self._options,
        )


def prompt(index: int, **fields: Any) -> Sample:
    """Slime's sample as the data source makes it."""
    return Sample(index=index, group_index=index, prompt=f"Walk {index}.", label="secret", **fields)


@contextmanager
def hook_module(**hooks: Any) -> Iterator[str]:
    """An importable module that holds these hooks, as a user's train_slime.py does."""
    name = "hooks_of_a_test"
    module = ModuleType(name)
    vars(module).update(hooks)
    sys.modules[name] = module
    try:
        yield name
    finally:
        del sys.modules[name]
