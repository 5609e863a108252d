"""Cancel a collection at its every scheduler tick: nothing may stay behind."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio.lowlevel
import pytest

from focus import (
    AdmissionPool,
    Agent,
    Allowance,
    Collector,
    Critic,
    Execution,
    ExecutionServices,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
)
from focus.errors import TransientError
from focus.policies.base import RequestTag
from focus.records.records import CriticContext
from focus.testing.envs import LiveEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.testing.stepping import CANCELS, Cancel, Stepper
from focus.tokens import Generation, TokenIds

PROBLEM = Problem(id="walk", prompt="Walk.")


async def by_height(contexts: Sequence[CriticContext]) -> list[float]:
    await anyio.lowlevel.checkpoint()
    return [0.5 + 0.02 * (c.text.count("+") - c.text.count("-")) for c in contexts]


class Flaky(ScriptedPolicy):
    """Every fifth request is lost, so that retries are cancelled too."""

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        reply = await super().generate(prefix, sampling, tag=tag)
        if self.requests % 5 == 0:
            raise TransientError("lost")
        return reply


Grow = Callable[..., Search]


@dataclass
class Scene:
    """What a cancelled run leaves behind can be seen on these."""

    tokens: int = 60
    grow: Grow = Search.two_phase
    env: LiveEnv = field(default_factory=LiveEnv)
    services: ExecutionServices = field(default_factory=lambda: ExecutionServices(AdmissionPool(2)))
    critic: Critic = field(default_factory=lambda: Critic.function(by_height, version="h"))

    def collector(self) -> Collector:
        agent = Agent(
            Flaky(walk_script(7)),
            parser=Segments(3),
            sampling=Sampling(seed=7),
            allowance=Allowance(tokens=7),
            execution=Execution(services=self.services, retry=RetryPolicy(base_s=0.0)),
        )
        return Collector(
            agent=agent,
            env=self.env,
            search=self.grow(tokens=self.tokens, concurrency=3),
            critic=self.critic,
        )

    async def collect(self) -> None:
        async with self.collector() as collector:
            found = await collector.collect(PROBLEM)
        assert found.ledger.balances

    async def cascade(self) -> None:
        self.grow = Search.cascade
        await self.collect()

    async def evaluate(self) -> None:
        async with self.collector() as collector:
            await collector.evaluate(PROBLEM)


Job = Callable[[Scene], Coroutine[Any, Any, None]]


def ticks_of(job: Job, tokens: int) -> int:
    scene = Scene(tokens)
    stepper = Stepper(lambda: job(scene))
    *_, last = stepper.run()
    stepper.task.result()
    assert scene.env.opened == scene.env.released > 1
    assert not stepper.leftovers()
    stepper.close()
    return last


def cancelled_at(moment: int, job: Job, cancel: Cancel, tokens: int) -> None:
    scene = Scene(tokens)
    stepper = Stepper(lambda: job(scene))
    outcome = stepper.run_cancelled(moment, cancel)
    assert outcome is None, f"{outcome!r} came out instead of the cancellation"
    assert not stepper.leftovers()
    stepper.close()
    assert scene.env.opened == scene.env.released
    pool = scene.services.pool.statistics
    assert (pool.in_use, pool.waiting) == (0, 0)
    asyncio.run(scene.evaluate())
    assert scene.env.opened == scene.env.released


@pytest.mark.parametrize("cancel", CANCELS.values(), ids=CANCELS)
@pytest.mark.parametrize("job", [Scene.collect, Scene.cascade, Scene.evaluate])
def test_nothing_stays_behind_wherever_it_is_cancelled(
    job: Job, cancel: Cancel, request: pytest.FixtureRequest
) -> None:
    tokens, stride = (300, 1) if request.config.getoption("--full") else (60, 2)
    for moment in range(1, ticks_of(job, tokens) + 1, stride):
        cancelled_at(moment, job, cancel, tokens)
    gc.collect()
