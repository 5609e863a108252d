"""R6, R7: a collection cancelled at its every await leaves nothing, and its client works on.

R6 runs on an in-memory transport, so that every tick of the loop can be met; R7 on real
sockets, with one client for all cancel points.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import anyio.lowlevel
import httpx

from focus.agent import Agent, Segments
from focus.checkpoint import Allowance
from focus.collect import Collector
from focus.errors import RequestError
from focus.execution import AdmissionPool, Execution, ExecutionServices, RetryPolicy
from focus.policies.sglang import SGLangPolicy
from focus.problem import Problem
from focus.promises.base import Measured, Stand
from focus.sampling import Sampling
from focus.search import Search
from focus.testing.chaos import ChaosEngine, ChaosServer, Clean, NonceTokenizer, survivable
from focus.testing.chaos.parts import faulty_critic
from focus.testing.envs import LiveEnv
from focus.testing.stepping import CANCELS, Cancel, Stepper

__all__ = ("MemoryTransport", "client_works_on", "nothing_left")

_PROBLEM = Problem(id="walk", prompt="Walk.")


def nothing_left(stand: Stand) -> Measured:
    """R6: what is left after cancelling at the k-th tick, in each of four ways."""
    stride = stand.pick(quick=20, full=1)
    tokens = stand.pick(quick=50, full=250)
    points = range(1, _ticks(tokens) + 1, stride)
    left: Counter[str] = Counter()
    before = _held_by_process()
    for done, moment in enumerate(points):
        for cancel in CANCELS.values():
            left.update(_left_after(moment, cancel, tokens))
        stand.progress(done, len(points))
    gc.collect()
    after = _held_by_process()
    left.update({name: max(0, after[name] - before[name]) for name in before})
    kinds = (*_LEFT, *before)
    detail = {"points": len(points), "ways": list(CANCELS), "left": {k: left[k] for k in kinds}}
    return Measured(sum(left.values()), len(points) * len(CANCELS), detail)


def client_works_on(stand: Stand) -> Measured:
    """R7: requests that fail on a client after each cancel point of a collection on it."""
    return asyncio.run(_client_works_on(stand))


class MemoryTransport(httpx.AsyncBaseTransport):
    """Answers as the chaos engine does, without sockets; every fifth answer is lost.

    Attributes:
        opened, closed: replies whose body was begun, and let go.
    """

    def __init__(self, engine: ChaosEngine) -> None:
        self._engine = engine
        self.requests = 0
        self.opened = 0
        self.closed = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await anyio.lowlevel.checkpoint()
        asked = json.loads(await request.aread())
        if request.url.path != "/generate":
            return httpx.Response(200, json={})
        self.requests += 1
        if self.requests % 5 == 0:
            raise httpx.ReadError("lost")
        return httpx.Response(200, stream=_Body(self, self._reply(asked)))

    def _reply(self, asked: Mapping[str, object]) -> bytes:
        prefix, params, rid = asked["input_ids"], asked["sampling_params"], asked["rid"]
        assert isinstance(prefix, list)
        assert isinstance(params, dict)
        assert isinstance(rid, str)
        sample = self._engine.sample(rid.partition("~")[0], prefix, params["max_new_tokens"])
        body = sample.body(rid, prompt_tokens=len(prefix), version=self._engine.version)
        return json.dumps(body).encode()


class _Body(httpx.AsyncByteStream):
    """A body in two pieces."""

    def __init__(self, transport: MemoryTransport, data: bytes) -> None:
        self._transport = transport
        self._data = data
        transport.opened += 1

    async def __aiter__(self) -> AsyncIterator[bytes]:
        half = len(self._data) // 2
        for part in (self._data[:half], self._data[half:]):
            await anyio.lowlevel.checkpoint()
            yield part

    async def aclose(self) -> None:
        self._transport.closed += 1


class _Scene:
    """One collection and everything that it may leave behind."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.env = LiveEnv()
        self.services = ExecutionServices(AdmissionPool(2))
        self.transport = MemoryTransport(ChaosEngine(seed=7))

    async def collect(self) -> None:
        async with httpx.AsyncClient(transport=self.transport) as client:
            policy = SGLangPolicy(
                "http://memory", tokenizer=NonceTokenizer(), version="chaos-1", client=client
            )
            tree = _collector(policy, self.env, self.services, tokens=self._tokens)
            async with tree as collector:
                await collector.collect(_PROBLEM)

    def left(self) -> Counter[str]:
        pool = self.services.pool.statistics
        return Counter(
            permits=pool.in_use + pool.waiting,
            environments=self.env.opened - self.env.released,
            replies=self.transport.opened - self.transport.closed,
        )


_LEFT = ("tasks", "exceptions", "permits", "environments", "replies")


def _collector(
    policy: SGLangPolicy, env: LiveEnv, services: ExecutionServices, *, tokens: int
) -> Collector:
    agent = Agent(
        policy,
        parser=Segments(4),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=9),
        execution=Execution(services=services, retry=RetryPolicy(base_s=0.0)),
    )
    search = Search.two_phase(tokens=tokens, concurrency=3)
    critic = faulty_critic(share=0.0)
    return Collector(agent=agent, env=env, search=search, critic=critic)


def _ticks(tokens: int) -> int:
    """Ticks of the undisturbed run."""
    stepper = Stepper(_Scene(tokens).collect)
    *_, last = stepper.run()
    stepper.task.result()
    stepper.close()
    return last


def _left_after(moment: int, cancel: Cancel, tokens: int) -> Counter[str]:
    scene = _Scene(tokens)
    stepper = Stepper(scene.collect)
    error = stepper.run_cancelled(moment, cancel)
    tasks = len(asyncio.all_tasks(stepper.loop))
    found = Counter(tasks=tasks, exceptions=len(stepper.complaints) + (error is not None))
    stepper.close()
    return found + scene.left()


def _held_by_process() -> Counter[str]:
    """Descriptors, threads and children of this process."""
    pid = os.getpid()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return Counter(
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=threading.active_count(),
        children=len(children),
    )


async def _client_works_on(stand: Stand) -> Measured:
    failed = points = 0
    before = _held_by_process()
    async with (
        ChaosServer(engine=ChaosEngine(seed=7)) as server,
        SGLangPolicy(server.url, tokenizer=NonceTokenizer()) as policy,
    ):
        await policy.refresh()
        moment, is_over = 1, False
        while not is_over:
            server.plan = survivable(3, odd=0.0)
            is_over = await _cancelled_at(moment, policy)
            server.plan = Clean()
            failed += not await _answers(policy)
            points += 1
            moment += stand.pick(quick=20, full=1)
            stand.progress(points, points + 1)
    await asyncio.sleep(0)
    gc.collect()
    kept = _held_by_process()["descriptors"] - before["descriptors"]
    detail = {"points": points, "failed": failed, "descriptors_left": kept}
    return Measured(failed + max(0, kept), points, detail)


async def _cancelled_at(moment: int, policy: SGLangPolicy) -> bool:
    """Cancel a collection at that tick; True if it was over before."""
    services = ExecutionServices(AdmissionPool(2))
    async with _collector(policy, LiveEnv(), services, tokens=50) as collector:
        task = asyncio.create_task(collector.collect(_PROBLEM))
        for _ in range(moment):
            await asyncio.sleep(0)
        is_over = task.done()
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return is_over


async def _answers(policy: SGLangPolicy) -> bool:
    """Whether the client gets an honest reply at the first try."""
    try:
        await policy.generate((1, 2, 3), Sampling(max_tokens=4))
    except RequestError:
        return False
    return True
