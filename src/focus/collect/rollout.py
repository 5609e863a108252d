"""One unbranched solution: evaluation, and fresh outcomes from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from focus.agent import Agent, Env, RequestPlace, Step
from focus.agent.env import release_state
from focus.checkpoint import Checkpoint
from focus.execution import RequestCounts

__all__ = ("release_steps", "rollout")


async def rollout(
    agent: Agent,
    env: Env,
    start: Checkpoint,
    *,
    name: str,
    counts: RequestCounts | None = None,
) -> list[Step]:
    """Continue `start` to the end of its episode; the steps, the last one terminal.

    The caller lets go of the steps' environment states with `release_steps`; when this
    raises, it has done so itself.

    Raises:
        RequestError, EnvError: an edge could not be sampled.
    """
    counts = counts or RequestCounts()
    version = agent.policy.version
    checkpoint = start
    steps: list[Step] = []
    try:
        while not steps or not steps[-1].is_terminal:
            place = RequestPlace(
                tree=name,
                version=version,
                expansion=0,
                index=len(steps),
                phase=0,
                counts=counts,
            )
            steps.append(await agent.advance(checkpoint, env, place=place))
            checkpoint = steps[-1].checkpoint
    except BaseException:
        with anyio.CancelScope(shield=True):
            await release_steps(env, steps)
        raise
    return steps


async def release_steps(env: Env, steps: Sequence[Step]) -> None:
    """Release the environment state of every step."""
    for step in steps:
        await release_state(env, step.checkpoint.state)
