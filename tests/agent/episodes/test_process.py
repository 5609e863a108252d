"""Episodes in processes: what is isolated, stopped, bounded and reaped."""

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from focus.agent.episodes import ProcessEnv, Transition
from focus.errors import (
    ConfigError,
    EnvError,
    LifecycleError,
    NondeterminismError,
    RecordError,
)
from focus.problem import Message, Problem
from focus.testing.env_check.leaks import descendants

PROBLEM = Problem(id="p", prompt="Talk.")
HERE = "tests.agent.episodes.test_process"
TOTAL: list[str] = []


class Odd:
    """Keeps its state where no copy reaches, and does what it is told."""

    def __init__(self, *, greeting: str = "hello") -> None:
        self.greeting = greeting

    def reset(self, problem: Problem) -> Sequence[Message]:
        return (Message("user", self.greeting),)

    def step(self, action: str) -> Transition:
        TOTAL.append(action)
        match action:
            case "raise":
                raise ValueError("broken on purpose")
            case "exit":
                os._exit(3)
            case "nan":
                return Transition(reward=float("nan"), done=True)
            case "hang":
                signal.pause()
            case "pid":
                return Transition((Message("user", str(os.getpid())),))
            case "program":
                started = subprocess.Popen(["sleep", "600"])
                return Transition((Message("user", str(started.pid)),))
            case "child":
                pid = os.fork()
                if pid == 0:
                    signal.pause()
                return Transition((Message("user", str(pid)),))
            case "orphan":
                if os.fork() == 0:
                    signal.pause()
                os._exit(3)
            case "orphaned program":
                os.system("sleep 600 &")
                os._exit(3)
        print("noise on stdout")
        return Transition((Message("user", " ".join(TOTAL)),))

    def finish(self, reason: str) -> float:
        return float(len(TOTAL))


def told(result: Any) -> str:
    return str(result.messages[0].content)


def test_a_fork_has_all_of_the_memory_and_shares_none() -> None:
    async def main() -> None:
        async with ProcessEnv(f"{HERE}:Odd", arguments={"greeting": "hi"}) as env:
            root, messages = await env.reset(PROBLEM)
            assert messages[0].content == "hi"
            first, second = await env.fork(root), await env.fork(root)
            assert told(await env.step(first, "a", None)) == "a"
            assert told(await env.step(second, "b", None)) == "b"
            deeper = await env.fork(first)
            assert told(await env.step(deeper, "c", None)) == "a c"
            assert await env.finish(first, None, "context") == 1.0
            await env.release(first)
            assert told(await env.step(deeper, "d", None)) == "a c d"
        assert TOTAL == []

    anyio.run(main)


def test_an_episode_that_breaks_or_ends_takes_nothing_with_it() -> None:
    async def main() -> None:
        async with ProcessEnv(f"{HERE}:Odd") as env:
            root, _ = await env.reset(PROBLEM)
            fork = await env.fork(root)
            with pytest.raises(EnvError, match=r"ValueError\('broken on purpose'\).*test_process"):
                await env.step(fork, "raise", None)
            assert told(await env.step(fork, "a", None)) == "raise a"
            with pytest.raises(EnvError, match="cannot be stored as JSON"):
                await env.step(await env.fork(root), "nan", None)
            with pytest.raises(RecordError):
                await env.step(fork, object(), None)
            assert told(await env.step(fork, "b", None)) == "raise a b"
            with pytest.raises(EnvError, match="its process has ended"):
                await env.step(fork, "exit", None)
            await env.release(fork)
            assert told(await env.step(await env.fork(root), "b", None)) == "b"

    anyio.run(main)


def test_an_episode_that_ends_by_itself_takes_what_it_started_with_it() -> None:
    """Also where it is noticed, and reaped, while a sibling is released."""

    async def main() -> None:
        async with ProcessEnv(f"{HERE}:Odd") as env:
            root, _ = await env.reset(PROBLEM)
            fork, sibling = await env.fork(root), await env.fork(root)
            child = int(told(await env.step(fork, "program", None)))
            with pytest.raises(EnvError, match="its process has ended"):
                await env.step(fork, "exit", None)
            await env.release(sibling)
            await env.release(fork)
            assert child not in descendants(os.getpid())

    anyio.run(main)


@pytest.mark.parametrize("action", ["orphan", "orphaned program"])
def test_the_end_of_an_episode_is_heard_though_what_it_started_lives(action: str) -> None:
    async def main() -> None:
        async with ProcessEnv(f"{HERE}:Odd") as env:
            root, _ = await env.reset(PROBLEM)
            fork = await env.fork(root)
            before = descendants(os.getpid())
            with anyio.fail_after(60), pytest.raises(EnvError, match="its process has ended"):
                await env.step(fork, action, None)
            left = descendants(os.getpid()) - before
            assert len(left) == 1
            await env.release(fork)
            assert not left & descendants(os.getpid())

    anyio.run(main)


def test_a_step_that_hangs_is_killed_with_what_it_started() -> None:
    async def main() -> None:
        async with ProcessEnv(f"{HERE}:Odd") as env:
            root, _ = await env.reset(PROBLEM)
            fork = await env.fork(root)
            child = int(told(await env.step(fork, "child", None)))
            own = int(told(await env.step(fork, "pid", None)))
            assert {child, own} < descendants(os.getpid())
            with anyio.move_on_after(0.05) as scope:
                await env.step(fork, "hang", None)
            assert scope.cancelled_caught
            with pytest.raises(EnvError, match="stopped in the middle"):
                await env.step(fork, "a", None)
            await env.release(fork)
            assert not {child, own} & descendants(os.getpid())
            assert told(await env.step(await env.fork(root), "b", None)) == "b"

    anyio.run(main)


def test_open_processes_are_bounded() -> None:
    async def main() -> None:
        async with ProcessEnv(f"{HERE}:Odd", most=3) as env:
            root, _ = await env.reset(PROBLEM)
            forks = [await env.fork(root), await env.fork(root)]
            with pytest.raises(EnvError, match="3 states are open"):
                await env.fork(root)
            await env.release(forks[0])
            assert len(descendants(os.getpid())) >= 3
            forks.append(await env.fork(root))
            with pytest.raises(EnvError, match="most="):
                await env.reset(PROBLEM)

    anyio.run(main)


def test_closing_ends_every_process_and_may_be_repeated() -> None:
    before = descendants(os.getpid())

    async def main() -> None:
        env = ProcessEnv(f"{HERE}:Odd")
        root, _ = await env.reset(PROBLEM)
        await env.step(await env.fork(root), "child", None)
        await env.fork(await env.fork(root))
        await env.aclose()
        await env.aclose()
        await env.release(root)
        assert env.open_states == 0
        with pytest.raises(LifecycleError, match="closed"):
            await env.reset(PROBLEM)

    anyio.run(main)
    assert descendants(os.getpid()) <= before


def test_a_host_that_is_killed_is_named_and_nothing_hangs() -> None:
    async def main() -> None:
        before = descendants(os.getpid())
        env = ProcessEnv(f"{HERE}:Odd")
        root, _ = await env.reset(PROBLEM)
        own = int(told(await env.step(await env.fork(root), "pid", None)))
        [host] = [p for p in descendants(os.getpid()) - before if own in descendants(p)]
        os.kill(host, signal.SIGKILL)
        with pytest.raises(EnvError, match="gone"):
            await env.fork(root)
        await env.aclose()

    anyio.run(main)


def test_an_environment_serves_one_event_loop_after_the_other() -> None:
    env = ProcessEnv(f"{HERE}:Odd")

    async def once() -> str:
        root, _ = await env.reset(PROBLEM)
        result = await env.step(await env.fork(root), "a", None)
        await env.release(root)
        await env.release(result.state)
        return told(result)

    assert [anyio.run(once) for _ in range(2)] == ["a", "a"]
    anyio.run(env.aclose)


class Restless(Odd):
    def step(self, action: str) -> Transition:
        return Transition((Message("user", str(os.getpid())),))


def test_a_snapshot_that_cannot_be_replayed_is_refused() -> None:
    async def main() -> None:
        async with ProcessEnv(f"{HERE}:Restless") as env:
            root, _ = await env.reset(PROBLEM)
            await env.step(root, "a", None)
            with pytest.raises(NondeterminismError, match="answers step 1 of 1 otherwise"):
                await env.restore(await env.snapshot(root))
            assert env.open_states == 1

    anyio.run(main)


@pytest.mark.parametrize("name", ["Odd", "__main__:Odd", ":x", "a b:c"])
def test_a_name_that_no_process_can_import_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"'package\.module:name'"):
        ProcessEnv(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("no_such_module:Odd", "No module named"), (f"{HERE}:Nobody", "no attribute 'Nobody'")],
)
def test_a_factory_that_is_not_there_is_named(name: str, reason: str) -> None:
    async def main() -> None:
        async with ProcessEnv(name) as env:
            for _ in range(2):
                with pytest.raises(EnvError, match=reason):
                    await env.reset(PROBLEM)

    anyio.run(main)
