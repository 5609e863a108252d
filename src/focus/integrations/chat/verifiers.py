"""Environments of the package verifiers (its v1), played by a policy of FOCUS.

Task set, tools, state and rewards run as they are, through verifiers' own episode. Only the
agent's program is ours: `focus.integrations.chat.verifiers_harness`, a chat loop in this
process, where verifiers would start one in a box of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from focus._extras import require
from focus.errors import EnvError, ProblemError
from focus.integrations.chat.env import ChatEnv
from focus.integrations.chat.episode import Program
from focus.integrations.chat.verifiers_harness import PLUGIN, register_harness
from focus.problem import Problem

__all__ = ("single_agent_env", "verifiers_env", "verifiers_problems")

_NO_KEY = "FOCUS_HAS_NO_SUCH_KEY"


def single_agent_env(taskset: Any, *, max_turns: int | None = None) -> Any:
    """verifiers' environment of one agent over a task set, with the chat loop of FOCUS.

    Args:
        taskset: its configuration, with the ``id`` of the package that has the task set.
        max_turns: model turns per episode.

    Raises:
        MissingExtra: verifiers is not installed.
    """
    vf = _verifiers()
    agent = vf.AgentConfig(
        harness=vf.HarnessConfig(id=PLUGIN),
        runtime=vf.SubprocessConfig(),
        max_turns=max_turns,
        network_notice=False,
    )
    return vf.SingleAgentEnv(vf.SingleAgentEnvConfig(taskset=taskset, agent=agent))


def verifiers_problems(make_env: Callable[[], Any], count: int) -> list[Problem]:
    """The first `count` tasks as problems; the task set decides what the policy is told.

    Raises:
        ProblemError: `count` is below 1.
    """
    if count < 1:
        raise ProblemError(f"no tasks with {count=}")
    env = make_env()
    return [
        Problem(
            id=f"{env.config.env_id}-{task.data.idx}",
            prompt=task.data.prompt_text or f"task {task.data.idx}",
            label=task.key,
            metadata={"task": task.data.idx},
        )
        for task in itertools.islice(env.taskset, count)
    ]


def verifiers_env(make_env: Callable[[], Any], *, patience_s: float = 120.0) -> ChatEnv:
    """The environment of one task: outcome is the reward of its episode.

    An episode that verifiers counts as failed is an error here and never a zero.

    Args:
        make_env: makes verifiers' environment, e.g. ``lambda: single_agent_env(config)``;
            called once per episode, replays included, since it serves one at a time.
        patience_s: most seconds from a reply to the next request.
    """
    return ChatEnv(_program(make_env), patience_s=patience_s)


def _program(make_env: Callable[[], Any]) -> Program:
    async def play(client: Any, problem: Problem) -> float:
        vf = _verifiers()
        env = make_env()
        wanted = problem.metadata.get("task")
        task = next((each for each in env.taskset if each.data.idx == wanted), None)
        if task is None:
            raise ProblemError(f"problem {problem.id!r}: the task set has no task {wanted!r}")
        with client.served() as url:
            config = vf.EvalClientConfig(base_url=url, api_key_var=_NO_KEY)
            async with env.serving():
                context = vf.ModelContext(model="policy", client=config)
                episode = await env.run_episode(task, context)
        return _reward(episode)

    return play


def _reward(episode: Any) -> float:
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok or len(episode.traces) != 1:
        told = "; ".join(f"{error.type}: {error.message}" for error in errors) or "no reason given"
        raise EnvError(f"verifiers counts this episode as failed: {told[:500]}")
    return float(episode.traces[0].reward)


def _verifiers() -> Any:
    register_harness()
    return require("verifiers.v1", extra="verifiers")
