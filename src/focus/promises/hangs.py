"""R5: whatever never answers, the wait for it ends at its deadline."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio

from focus.agent import Agent, Segments, StepResult
from focus.checkpoint import Allowance
from focus.collect import Collector
from focus.critic import Critic
from focus.errors import FocusError
from focus.execution import AdmissionPool, Execution, ExecutionServices, RetryPolicy
from focus.policies.base import Policy
from focus.policies.sglang import SGLangPolicy
from focus.problem import Message, Problem
from focus.promises.base import Measured, Stand
from focus.records.records import CriticContext
from focus.search import Search
from focus.tasks import Grader
from focus.testing.chaos import Alone, ChaosServer, NonceTokenizer, fault_named
from focus.testing.envs import Handle, LiveEnv, walk_script
from focus.testing.policies import ScriptedPolicy

__all__ = ("SILENT", "nothing_hangs")

_DEADLINE_S = 0.1
_AT_ONCE = 3
_PROBLEM = Problem(id="walk", prompt="Walk.")
SILENT = ("stall_before_headers", "stall_mid_body", "trickle", "endless_chunks", "late_reply")
"""Faults of the chaos server that only the client's deadline ends."""


def nothing_hangs(stand: Stand) -> Measured:
    """Worst time past a deadline; a permit still held afterwards breaks the promise outright."""
    times = stand.pick(quick=5, full=1_000)
    waits: dict[str, Callable[[int], Awaitable[list[float]]]] = {
        **{name: partial(_server, name) for name in SILENT},
        "accept_then_nothing": _unread,
        "frozen_critic": _frozen_critic,
        **{
            f"frozen_{method}": partial(_frozen_env, method) for method in ("reset", "fork", "step")
        },
    }
    worst: dict[str, float] = {}
    anyio.run(_server, SILENT[0], 1)  # the first request of a process imports the HTTP client
    for name, wait in waits.items():
        worst[name] = max(anyio.run(wait, times))
        stand.progress(len(worst), len(waits) + 2)
    options = {"loop_factory": _DeafLoop}
    worst["dead_dns"] = max(anyio.run(_unresolved, times, backend_options=options))
    worst["frozen_grader"] = max(anyio.run(_frozen_grader, stand.pick(quick=1, full=50)))
    detail = {"worst_s": {name: round(late, 3) for name, late in worst.items()}}
    return Measured(max(worst.values()), (len(worst) - 1) * times, detail)


class _HeldPermit(FocusError):
    """A wait has ended and its permit has not come back."""


async def _late(
    policy: Policy,
    *,
    env: LiveEnv | None = None,
    critic: Critic | None = None,
    deadline_s: float = _DEADLINE_S,
) -> float:
    """Seconds past the deadline at which a collection that meets one hang has failed."""
    services = ExecutionServices(AdmissionPool(1))
    execution = Execution(
        services=services,
        deadline_s=deadline_s,
        env_deadline_s=deadline_s,
        retry=RetryPolicy(attempts=1, base_s=0.0),
    )
    agent = Agent(policy, parser=Segments(4), allowance=Allowance(tokens=4), execution=execution)
    search = Search.flat(1)
    started = time.monotonic()
    async with Collector(
        agent=agent, env=env or LiveEnv(), search=search, critic=critic
    ) as collector:
        try:
            await collector.collect(_PROBLEM)
        except FocusError:
            late = time.monotonic() - started - deadline_s
        else:
            raise FocusError("what should have hung has answered")
    if services.pool.statistics.in_use:
        raise _HeldPermit(f"{services.pool.statistics.in_use} permits are held")
    return late


async def _many(times: int, wait: Callable[[], Awaitable[float]]) -> list[float]:
    """`times` waits, a few at once: what is measured is the wait and not the queue for a core."""
    found: list[float] = []

    async def some(count: int) -> None:
        for _ in range(count):
            found.append(await wait())

    async with anyio.create_task_group() as group:
        for first in range(min(times, _AT_ONCE)):
            group.start_soon(some, len(range(first, times, _AT_ONCE)))
    return found


def _remote(url: str) -> SGLangPolicy:
    return SGLangPolicy(url, tokenizer=NonceTokenizer(), version="chaos-1", context_limit=4096)


async def _server(fault: str, times: int) -> list[float]:
    async with ChaosServer(Alone(fault_named(fault))) as server, _remote(server.url) as policy:
        return await _many(times, lambda: _late(policy))


async def _unread(times: int) -> list[float]:
    """The system accepts; no program ever reads."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = listening.getsockname()[1]
        async with _remote(f"http://127.0.0.1:{port}") as policy:
            return await _many(times, lambda: _late(policy))


class _DeafLoop(asyncio.SelectorEventLoop):
    """An event loop whose resolver never answers."""

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        await asyncio.Event().wait()


async def _unresolved(times: int) -> list[float]:
    async with _remote("http://engine.invalid:30000") as policy:
        return await _many(times, lambda: _late(policy))


def _walker() -> ScriptedPolicy:
    return ScriptedPolicy(walk_script(3))


async def _frozen_critic(times: int) -> list[float]:
    async def predict(contexts: Sequence[CriticContext]) -> Sequence[float]:
        await anyio.sleep_forever()
        return []

    def once() -> Awaitable[float]:
        frozen = Critic.function(predict, version="frozen", deadline_s=_DEADLINE_S)
        return _late(_walker(), critic=frozen)

    return await _many(times, once)


class _Frozen(LiveEnv):
    """One of its methods never returns."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    async def reset(self, problem: Problem) -> tuple[Handle, tuple[Message, ...]]:
        await self._freeze("reset")
        return await super().reset(problem)

    async def fork(self, state: Handle) -> Handle:
        await self._freeze("fork")
        return await super().fork(state)

    async def step(self, state: Handle, action: Any, workspace: object) -> StepResult:
        await self._freeze("step")
        return await super().step(state, action, workspace)

    async def _freeze(self, method: str) -> None:
        if method == self._method:
            await anyio.sleep_forever()


async def _frozen_env(method: str, times: int) -> list[float]:
    return await _many(times, lambda: _late(_walker(), env=_Frozen(method)))


class _Graded(LiveEnv):
    """Grades each ending with a grader whose process is stopped in mid-air."""

    def __init__(self, grader: Grader, answer: int) -> None:
        super().__init__()
        self._grader = grader
        self._answer = answer

    async def step(self, state: Any, action: Any, workspace: object) -> StepResult:
        for worker in self._grader.pids:
            os.kill(worker, signal.SIGSTOP)
        await self._grader.grade(rf"\boxed{{{self._answer}}}", "2")
        return await super().step(state, action, workspace)


async def _frozen_grader(times: int) -> list[float]:
    found = []
    async with Grader(deadline_s=60.0) as grader:
        for answer in range(times):
            await grader.grade(rf"\boxed{{{times + answer}}}", "2")
            found.append(await _late(_walker(), env=_Graded(grader, answer)))
    return found
