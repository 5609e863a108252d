"""Containers as states, on a fake engine: what is run, saved, discarded and refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus.agent.episodes import DOCKER, PODMAN, ContainerEnv, Engine, Finished, run_command
from focus.errors import ConfigError, EnvError

from .kinds import PROBLEM, FakeEngine


class Listed(FakeEngine):
    """Keeps the verbs that were run, and breaks those that it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.verbs: list[str] = []
        self.broken = ""

    async def run(self, line: Any, stdin: bytes) -> Finished:
        verb = "restore" if "restore" in line else "save" if "checkpoint" in line else line[1]
        self.verbs.append(verb)
        if verb == self.broken:
            return Finished(1, b"", b"no more today")
        return await super().run(line, stdin)


def test_a_state_is_saved_once_for_all_its_forks(tmp_path: Path) -> None:
    async def main() -> None:
        engine = Listed(tmp_path)
        env = engine.env()
        root, _ = await env.reset(PROBLEM)
        forks = [await env.fork(root) for _ in range(3)]
        assert engine.verbs.count("save") == 1
        result = await env.step(forks[0], "+", None)
        assert result.messages[0].content == "start +"
        deeper = await env.fork(forks[0])
        assert (await env.step(deeper, "x", None)).messages[0].content == "start + x"
        assert engine.verbs.count("save") == 2
        for state in (root, *forks, deeper):
            await env.release(state)

    anyio.run(main)
    assert FakeEngine.left_in(tmp_path) == []


def test_a_state_that_was_saved_and_then_stepped_is_saved_again(tmp_path: Path) -> None:
    async def main() -> None:
        env = FakeEngine(tmp_path).env()
        root, _ = await env.reset(PROBLEM)
        await env.release(await env.fork(root))
        await env.step(root, "+", None)
        fork = await env.fork(root)
        assert (await env.step(fork, "x", None)).messages[0].content == "start + x"
        await env.release(fork)
        await env.release(root)

    anyio.run(main)
    assert FakeEngine.left_in(tmp_path) == []


def test_a_snapshot_stays_until_the_user_removes_it(tmp_path: Path) -> None:
    async def main() -> None:
        env = FakeEngine(tmp_path).env()
        root, _ = await env.reset(PROBLEM)
        kept = await env.snapshot(root)
        await env.release(root)
        assert FakeEngine.left_in(tmp_path) == [f"{kept['mark']}.tar"]
        for _ in range(2):
            await env.release(await env.restore(kept))

    anyio.run(main)


@pytest.mark.parametrize("broken", ["run", "exec", "save", "restore"])
def test_a_command_that_fails_is_shown_and_leaves_nothing(broken: str, tmp_path: Path) -> None:
    async def main() -> None:
        engine = Listed(tmp_path)
        env = engine.env()
        states = []
        if broken in ("save", "restore"):
            states.append((await env.reset(PROBLEM))[0])
        engine.broken = broken
        with pytest.raises(EnvError, match=r"exit code 1: no more today"):
            await (env.fork(states[0]) if states else env.reset(PROBLEM))
        engine.broken = ""
        for state in states:
            await env.release(state)
        assert env.open_states == 0

    # A container that was never made cannot be removed either: the first error is told.
    anyio.run(main)
    assert FakeEngine.left_in(tmp_path) == []


def test_an_episode_that_fails_or_talks_nonsense_is_shown(tmp_path: Path) -> None:
    async def main() -> None:
        env = FakeEngine(tmp_path).env()
        root, _ = await env.reset(PROBLEM)
        with pytest.raises(EnvError, match="exit code 3: the episode broke"):
            await env.step(await env.fork(root), "break", None)
        other = ContainerEnv("i", run=answering(b"hello"))
        with pytest.raises(EnvError, match="not readable JSON"):
            await other.reset(PROBLEM)

    anyio.run(main)


def answering(stdout: bytes) -> Any:
    async def run(line: Sequence[str], stdin: bytes) -> Finished:
        return Finished(0, stdout, b"")

    return run


def test_a_command_past_its_deadline_is_killed() -> None:
    slow = replace(PODMAN, start=("sleep", "60"), remove=("true",))

    async def main() -> None:
        env = ContainerEnv("image", engine=slow, deadline_s=0.05)
        with pytest.raises(EnvError, match=r"sleep 60: no end within 0\.05 s"):
            await env.reset(PROBLEM)
        assert env.open_states == 0

    anyio.run(main)


def test_containers_are_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        env = FakeEngine(tmp_path).env(most=1)
        root, _ = await env.reset(PROBLEM)
        with pytest.raises(EnvError, match="most="):
            await env.fork(root)
        await env.release(root)

    anyio.run(main)
    assert FakeEngine.left_in(tmp_path) == []


def test_an_engine_that_is_not_installed_is_named() -> None:
    async def main() -> None:
        with pytest.raises(EnvError, match="no-such-engine cannot be run"):
            await run_command(["no-such-engine"], b"")
        assert (await run_command(["cat"], b"text")).stdout == b"text"

    anyio.run(main)


def test_lines_are_what_the_engines_take() -> None:
    places = {"name": "n", "archive": "/a.tar", "mark": "m", "image": "i"}
    assert " ".join(PODMAN.line(PODMAN.save, **places)) == (
        "podman container checkpoint --leave-running --export /a.tar n"
    )
    assert " ".join(PODMAN.line(PODMAN.load, **places)) == (
        "podman container restore --import /a.tar --name n"
    )
    assert DOCKER.line(DOCKER.save, **places) == ["docker", "commit", "n", "m"]
    assert DOCKER.line(DOCKER.load, **places) == ["docker", "run", "--detach", "--name", "n", "m"]


@pytest.mark.parametrize("line", [(), ("{program}", "{nmae}"), ("{",)])
def test_an_engine_checks_its_lines(line: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="save"):
        replace(PODMAN, save=line)
    assert isinstance(replace(PODMAN, program="/opt/podman"), Engine)
