"""One unbranched solution: evaluation, and fresh outcomes from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from focus.agent import Agent, Env, RequestPlace, Step
from focus.agent.env import Held, released_on_failure
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

    The caller lets go of the steps' states and workspaces with `release_steps`; when this
    raises, it has done so itself.

    Raises:
        RequestError, EnvError: an edge could not be sampled.
    """
    counts = counts or RequestCounts()
    version = agent.policy.version
    checkpoint = start
    steps: list[Step] = []
    async with released_on_failure(env) as held:
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
            held.add(checkpoint)
    return steps


async def release_steps(env: Env, steps: Sequence[Step]) -> None:
    """Release the environment state and workspace of every step.

    Raises:
        EnvError: a release failed; the others are done.
    """
    held = Held()
    for step in steps:
        held.add(step.checkpoint)
    await held.release(env)
