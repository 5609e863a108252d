"""Family (f): loops, threads, permits, signals; nothing outlives the collection it is for."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.policies.loopback import ByteTokenizer, Loopback
from tests.slime.host.rollout import SlimeLoop
from tests.slime.walks import Walks

import focus
from focus import (
    AdmissionPool,
    Critic,
    Execution,
    ExecutionServices,
    Message,
    RetryPolicy,
    Search,
)
from focus.errors import CollectionFailed, CorruptReply, FatalError
from focus.integrations.slime import make_evaluate, make_generate
from focus.models import BUILTIN
from focus.policies.codec import Codec
from focus.policies.sglang import SGLangPolicy
from focus.records.records import CriticContext
from focus.rendering import encode, load_tokenizer, lock_of, profile_named, render_chat
from focus.tasks.grading import shared_grader
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tokens import FinishReason, Generation

from .servers import Engine, collect, served, written

SOURCES = Path(focus.__file__).parent


def test_b46_three_loops_share_one_services_object() -> None:
    services = ExecutionServices(AdmissionPool(2))
    execution = Execution(services=services)
    policy = ScriptedPolicy(walk_script(6))

    async def once() -> list[Any]:
        found = await collect(policy, WalkEnv(), search=Search.flat(6), execution=execution)
        return [record.response for record in found.actor]

    first, second, third = (asyncio.run(once()) for _ in range(3))
    assert first == second == third
    assert services.pool.statistics.in_use == 0


def test_b46_a_policy_serves_loops_side_by_side_and_one_after_another() -> None:
    """A kept-alive connection belongs to the loop that opened it, and no other loop gets it."""
    host, server = SlimeLoop(), Loopback(Engine(written("+-+")))
    host.run(server.__aenter__())
    policy = SGLangPolicy(server.url, tokenizer=ByteTokenizer())
    loops = [asyncio.new_event_loop() for _ in range(2)]
    try:
        for loop in (*loops, *loops):
            once = asyncio.wait_for(collect(policy, WalkEnv()), 120)
            assert len(loop.run_until_complete(once).tree) == 2
    finally:
        for loop in loops:
            loop.run_until_complete(policy.aclose())
            loop.close()
        host.run(server.__aexit__())
        host.close()
    assert server.connections == 2


def calls_of(path: Path) -> set[str]:
    """What a module calls when it is imported or used, but for what it does as a program."""
    body = ast.parse(path.read_text("utf-8")).body
    used = [
        part
        for part in body
        if not (isinstance(part, ast.If) and "__name__" in ast.unparse(part.test))
    ]
    nodes = [node for part in used for node in ast.walk(part)]
    return {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}


def test_b46_only_programs_start_event_loops() -> None:
    """A library that calls run() inside a hook binds its queues to a loop that ends."""
    programs = {"cli", "promises", "testing", "serving"}
    # Somebody else's whole program, in a thread that is its own: no hook, and no queue of ours.
    hosts = {"integrations/chat/episode.py"}
    starters = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if calls_of(path) & {"asyncio.run", "anyio.run"}
    ]
    found = [name for name in starters if Path(name).parts[0] not in programs]
    assert set(found) == hosts


def test_b46_hooks_are_coroutines() -> None:
    for hook in (
        make_generate(Walks(), profile="token_chunk"),
        make_evaluate(Walks(), profile="token_chunk"),
    ):
        assert inspect.iscoroutinefunction(hook)


class ThirdFails(ScriptedPolicy):
    """The third request raises once all sixteen are in flight; the others never end."""

    def __init__(self, error: Exception) -> None:
        super().__init__(lambda *_: "")
        self._error = error
        self._all_here = asyncio.Event()

    async def generate(self, *args: Any, **options: Any) -> Generation:
        self.requests += 1
        mine = self.requests
        if mine == 16:
            self._all_here.set()
        await self._all_here.wait()
        if mine == 3:
            raise self._error
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


@pytest.mark.anyio
async def test_b47_the_first_error_ends_all_siblings() -> None:
    error = FatalError("wrong key")
    policy = ThirdFails(error)
    before = asyncio.all_tasks()
    with anyio.fail_after(60), pytest.raises(CollectionFailed) as caught:
        await collect(policy, WalkEnv(), search=Search.flat(16, concurrency=16))
    assert caught.value.__cause__ is error
    assert asyncio.all_tasks() == before
    for _ in range(20):
        await asyncio.sleep(0)
    assert policy.requests == 16


@pytest.mark.anyio
@pytest.mark.parametrize("capacity", [1, 2])
async def test_b49_a_critic_may_need_the_pool_that_expansions_use(capacity: int) -> None:
    """No permit is held while another one is awaited, so one permit is enough for both."""
    services = ExecutionServices(AdmissionPool(capacity))

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        async with services.pool.permit():
            await anyio.lowlevel.checkpoint()
            return [0.5] * len(contexts)

    with anyio.fail_after(60):
        found = await collect(
            ScriptedPolicy(walk_script(9)),
            WalkEnv(),
            segment=3,
            search=Search.two_phase(tokens=80),
            critic=Critic.function(predict, version="pooled"),
            execution=Execution(services=services),
        )
    assert len(found.tree) > 4
    assert services.pool.statistics.peak == capacity


FIFTY = """
import signal, sys
# A parent that ignores Ctrl-C, as shells let background jobs do, passes that on.
signal.signal(signal.SIGINT, signal.SIG_IGN if "deaf" in sys.argv else signal.default_int_handler)
import anyio, typer
from rich.console import Console
from focus import Agent, Allowance, Collector, Problem, Search, Segments
from focus.cli.interrupt import run_until_interrupted
from focus.testing.envs import LiveEnv
from focus.testing.policies import ScriptedPolicy

class Slow(ScriptedPolicy):
    async def generate(self, *args, **options):
        self.requests += 1
        if self.requests == 50:
            print("open", flush=True)
        await anyio.sleep_forever()

class Closing(LiveEnv):
    is_first, may_close = True, anyio.Event()

    async def release(self, state):
        if Closing.is_first:
            Closing.is_first = False
            print("closing", flush=True)
            await anyio.to_thread.run_sync(sys.stdin.readline)
            Closing.may_close.set()
        await Closing.may_close.wait()
        await super().release(state)

policy = Slow(lambda *_: "")
envs = [Closing() for _ in range(50)]

async def one(env, number):
    agent = Agent(policy, parser=Segments(4), allowance=Allowance(tokens=8))
    async with Collector(agent=agent, env=env, search=Search.flat(1)) as collector:
        await collector.collect(Problem(id=number, prompt="p"))

async def work(progress):
    try:
        async with anyio.create_task_group() as group:
            for number, env in enumerate(envs):
                group.start_soon(one, env, number)
    finally:
        print(sum(e.opened for e in envs), sum(e.released for e in envs), flush=True)

try:
    run_until_interrupted(work, console=Console(file=sys.stderr), last_words="closed")
except typer.Exit as done:
    sys.exit(done.exit_code)
"""


@pytest.mark.parametrize(
    ("options", "first", "later"),
    [
        ([], signal.SIGINT, ()),
        ([], signal.SIGINT, (signal.SIGTERM, signal.SIGINT)),
        ([], signal.SIGTERM, (signal.SIGINT, signal.SIGTERM)),
        (["deaf"], signal.SIGTERM, ()),
    ],
)
def test_b50_every_environment_is_closed_when_the_process_is_told_to_stop(
    options: list[str], first: signal.Signals, later: Sequence[signal.Signals]
) -> None:
    """50 opened, 50 closed; signals that come during the clean-up do not cut it short."""
    child = subprocess.Popen(
        [sys.executable, "-c", FIFTY, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "open\n"
            child.send_signal(first)
            assert child.stdout.readline() == "closing\n"
            for number in later:
                child.send_signal(number)
            told, said = child.communicate("now\n", timeout=500)
        finally:
            child.kill()
    assert told == "50 50\n"
    assert "stopped: closed" in said
    assert "Traceback" not in said
    assert child.returncode == 128 + first


class Guarded(ByteTokenizer):
    """Notes the calls during which another thread could have used it as well."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.unguarded: list[str] = []

    def _note(self, name: str) -> None:
        lock = lock_of(self)

        def try_it() -> bool:
            return lock.acquire(blocking=False) and (lock.release() or True)

        with ThreadPoolExecutor(1) as other:
            is_free = other.submit(try_it).result()
        (self.unguarded if is_free else self.used).append(name)

    def encode(self, *args: Any, **options: Any) -> list[int]:
        self._note("encode")
        return super().encode(*args, **options)

    def decode(self, *args: Any, **options: Any) -> str:
        self._note("decode")
        return super().decode(*args, **options)

    def apply_chat_template(self, *args: Any, **options: Any) -> list[int]:
        self._note("template")
        return super().apply_chat_template(*args, **options)

    def get_vocab(self) -> dict[str, int]:
        self._note("vocabulary")
        return super().get_vocab()


def test_b52_whatever_calls_a_tokenizer_holds_its_lock() -> None:
    """A fast tokenizer that two threads use at once fails with "Already borrowed"."""
    tokenizer = Guarded()
    codec = Codec.of(tokenizer=tokenizer, model=None, profile="token_chunk")
    codec.render((Message("user", "x"),))
    profile_named("text").render(tokenizer, (Message("user", "x"),), ())
    encode(tokenizer, "x")
    codec.decode((65, 66))
    assert set(tokenizer.used) == {"encode", "decode", "template", "vocabulary"}
    assert tokenizer.unguarded == []


def test_b52_threads_render_with_one_tokenizer_as_one_thread_does() -> None:
    tokenizer = load_tokenizer(BUILTIN)
    texts = [f"Compute {number} + 1. " * 5 for number in range(64)]
    start = threading.Barrier(64)

    def render(text: str) -> Any:
        start.wait()
        return render_chat(tokenizer, (Message("user", text),))

    serial = [render_chat(tokenizer, (Message("user", text),)) for text in texts]
    with ThreadPoolExecutor(64) as threads:
        assert list(threads.map(render, texts)) == serial


@pytest.mark.anyio
@pytest.mark.parametrize("finish", FinishReason)
async def test_b52_an_empty_trajectory_is_an_error_with_its_cause(finish: FinishReason) -> None:
    class Empty(ScriptedPolicy):
        async def generate(self, *args: Any, **options: Any) -> Generation:
            return Generation((), (), finish, self.version)

    retry = RetryPolicy(attempts=1, corrupt_attempts=1)
    with pytest.raises(CollectionFailed) as caught:
        await collect(Empty(lambda *_: ""), WalkEnv(), execution=Execution(retry=retry))
    if finish is not FinishReason.ABORT:
        assert isinstance(caught.value.__cause__, CorruptReply)
        assert "no ids" in str(caught.value)


def first_uses(make: Callable[[], Callable[[], Any]], *, threads: int = 8) -> list[int]:
    """How many different objects `threads` get that use a fresh thing for the first time."""
    kinds = []
    for _ in range(200):
        use = make()
        start = threading.Barrier(threads)

        def together(use: Callable[[], Any] = use, start: threading.Barrier = start) -> Any:
            start.wait()
            return use()

        with ThreadPoolExecutor(threads) as pool:
            found = [future.result() for future in [pool.submit(together) for _ in range(threads)]]
        kinds.append(len({id(one) for one in found}))
    return kinds


def test_b53_an_execution_makes_its_services_once() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:

        def make() -> Callable[[], Any]:
            execution = Execution()
            return lambda: execution.shared

        assert set(first_uses(make)) == {1}
    finally:
        sys.setswitchinterval(before)


def test_b53_a_tokenizer_and_a_grader_are_made_once_per_process() -> None:
    start = threading.Barrier(8)

    def together(_: int) -> tuple[int, int]:
        start.wait()
        return id(load_tokenizer(BUILTIN)), id(shared_grader())

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(together, range(8)))) == 1


@pytest.mark.anyio
async def test_b53_concurrent_first_requests_share_one_client() -> None:
    engine = Engine(written("+"))
    async with served(engine) as policy:
        transport = policy._transport  # the client that concurrent first requests must share
        assert isinstance(policy, SGLangPolicy)
        await collect(policy, WalkEnv(), search=Search.flat(8, concurrency=8))
        assert len(transport._own) == 1  # type: ignore[attr-defined]
