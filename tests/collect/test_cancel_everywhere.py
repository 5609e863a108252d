"""Cancel a collection at its every scheduler tick: nothing may stay behind.

The event loop is stepped by hand, so a tick is one pass over the ready callbacks and the
k-th tick of two runs is the same moment.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
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


@dataclass
class Scene:
    """What a cancelled run leaves behind can be seen on these."""

    tokens: int = 60
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
            search=Search.two_phase(tokens=self.tokens, concurrency=3),
            critic=self.critic,
        )

    async def collect(self) -> None:
        async with self.collector() as collector:
            found = await collector.collect(PROBLEM)
        assert found.ledger.balances

    async def evaluate(self) -> None:
        async with self.collector() as collector:
            await collector.evaluate(PROBLEM)


Job = Callable[[Scene], Coroutine[Any, Any, None]]
Cancel = Callable[["Stepper", int], None]


class Stepper:
    """One run, tick by tick."""

    def __init__(self, scene: Scene, job: Job) -> None:
        self.loop = asyncio.new_event_loop()
        self.complaints: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(str(context)))
        self.scope: anyio.CancelScope | None = None
        self.ticks = 0

        async def main() -> None:
            with anyio.CancelScope() as self.scope:
                await job(scene)

        self.task = self.loop.create_task(main())

    def tick(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        self.ticks += 1
        assert self.ticks < 20_000, "hangs"

    def run(self) -> Iterator[int]:
        while not self.task.done():
            self.tick()
            yield self.ticks

    def leftovers(self) -> list[str]:
        found = [repr(task) for task in asyncio.all_tasks(self.loop)]
        return found + self.complaints

    def close(self) -> None:
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def once(stepper: Stepper, since: int) -> None:
    if since == 0:
        stepper.task.cancel()


def three_times(stepper: Stepper, since: int) -> None:
    if since in (0, 1, 3):
        stepper.task.cancel()


def every_tick(stepper: Stepper, since: int) -> None:
    if since < 50:
        stepper.task.cancel()


def by_scope(stepper: Stepper, since: int) -> None:
    if since == 0 and stepper.scope is not None:
        stepper.loop.call_soon(stepper.scope.cancel)


def ticks_of(job: Job, tokens: int) -> int:
    scene = Scene(tokens)
    stepper = Stepper(scene, job)
    *_, last = stepper.run()
    stepper.task.result()
    assert scene.env.opened == scene.env.released > 1
    assert not stepper.leftovers()
    stepper.close()
    return last


def cancelled_at(moment: int, job: Job, cancel: Cancel, tokens: int) -> None:
    scene = Scene(tokens)
    stepper = Stepper(scene, job)
    for tick in stepper.run():
        if tick >= moment and not stepper.task.done():
            cancel(stepper, tick - moment)
    outcome = None if stepper.task.cancelled() else stepper.task.exception()
    assert outcome is None, f"{outcome!r} came out instead of the cancellation"
    assert not stepper.leftovers()
    stepper.close()
    assert scene.env.opened == scene.env.released
    pool = scene.services.pool.statistics
    assert (pool.in_use, pool.waiting) == (0, 0)
    asyncio.run(scene.evaluate())
    assert scene.env.opened == scene.env.released


@pytest.mark.parametrize("cancel", [once, three_times, every_tick, by_scope])
@pytest.mark.parametrize("job", [Scene.collect, Scene.evaluate])
def test_nothing_stays_behind_wherever_it_is_cancelled(
    job: Job, cancel: Cancel, request: pytest.FixtureRequest
) -> None:
    tokens, stride = (300, 1) if request.config.getoption("--full") else (60, 2)
    for moment in range(1, ticks_of(job, tokens) + 1, stride):
        cancelled_at(moment, job, cancel, tokens)
    gc.collect()
