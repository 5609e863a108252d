"""A stand-in for Slime, as small as its hooks allow: arguments, samples, a walk to collect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from focus import Agent, Allowance, Collector, Critic, Policy, Problem, Sampling, Search, Segments
from focus.agent import Env
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy

__all__ = ("HostSample", "Walker", "host_args")

_STEPS = 6


def host_args(**changes: Any) -> SimpleNamespace:
    """Slime's arguments, with these ones changed. Nothing listens at the address."""
    args = SimpleNamespace(
        sglang_router_ip="127.0.0.1",
        sglang_router_port=9,
        hf_checkpoint="builtin",
        rollout_temperature=1.0,
        rollout_batch_size=1,
        advantage_estimator="grpo",
    )
    vars(args).update(changes)
    return args


class HostSample(SimpleNamespace):
    """The least that a host's sample has."""

    label = "secret"
    metadata: Any = None


class Walker:
    """A `collector_for` whose policy is scripted; counts the requests it is asked for.

    Args:
        env: each problem's environment.
        sampling: of the agent.
        policy: settings of the scripted policy.
    """

    def __init__(
        self, *, env: type[Env] = WalkEnv, sampling: Sampling | None = None, **policy: Any
    ) -> None:
        self._env = env
        self._sampling = sampling
        self._settings = policy
        self._policies: list[ScriptedPolicy] = []

    @property
    def requests(self) -> int:
        return sum(policy.requests for policy in self._policies)

    def __call__(self, policy: Policy, problem: Problem) -> Collector:
        self._policies.append(ScriptedPolicy(walk_script(_STEPS), **self._settings))
        agent = Agent(
            self._policies[-1],
            parser=Segments(3),
            sampling=self._sampling,
            allowance=Allowance(tokens=_STEPS + 1),
        )
        return Collector(
            agent=agent,
            env=self._env(),
            search=Search.two_phase(tokens=40),
            critic=Critic.constant(0.5),
        )
