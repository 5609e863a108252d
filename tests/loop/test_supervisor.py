"""One supervisor per loop: it decides rounds, brings back what dies, and leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from focus.critic.store import SnapshotStore
from focus.errors import ConfigError, LifecycleError, StoreError
from focus.loop.processes import find_marked
from focus.loop.settings import LoopSettings, RestartSettings
from focus.loop.supervisor import NAMES, LoopSummary, Supervisor
from focus.loop.tags import RoundTag, RoundTags
from focus.records import JsonlDirectory, read_critic_records

from .fakes import write_round

pytestmark = pytest.mark.anyio

FAKES = str(Path(__file__).with_name("fakes.py"))
FOCUS = [sys.executable, "-m", "focus"]


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.tags: list[RoundTag] = []
        self.last = ""

    def say(self, text: str) -> None:
        self.said.append(text)

    def decided(self, tag: RoundTag) -> None:
        self.tags.append(tag)

    def status(self, text: str) -> None:
        self.last = text


def config(
    folder: Path, *, rounds: int = 4, actor: list[str] | None = None, **more: object
) -> Path:
    """A loop whose critic is never served: the fake trainer's snapshots do not steer."""
    words = {
        "actor": actor or [sys.executable, FAKES, "actor", str(folder), str(rounds)],
        "trainer": [
            sys.executable,
            FAKES,
            "trainer",
            str(folder / "targets"),
            str(folder / "critics"),
        ],
    }
    lines = [f'folder = "{folder}"', *(f"{name} = {json.dumps(v)}" for name, v in more.items())]
    for name, command in words.items():
        lines += [f"[{name}]", f"command = {json.dumps(command)}"]
    lines += ["[server]", 'url = "http://127.0.0.1:9"']
    lines += ["[restart]", "first_pause_s = 0.05", "most_pause_s = 0.2", "most = 20"]
    path = folder.with_suffix(".toml")
    path.write_text("\n".join(lines))
    return path


def living(folder: Path) -> dict[str, int]:
    found = {name: find_marked(f"{os.path.realpath(folder)}#{name}") for name in NAMES}
    return {name: process.pid for name, process in found.items() if process is not None}


@contextlib.contextmanager
def supervising(path: Path) -> Iterator[subprocess.Popen[str]]:
    """`focus loop` as a process; whatever is left is killed with the block."""
    with subprocess.Popen(
        [*FOCUS, "loop", str(path)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            Supervisor.end_orphans(LoopSettings.load(path))


def until(process: subprocess.Popen[str], words: str) -> str:
    """Read what it says up to a line that holds `words`."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"it ended without saying {words!r}")


async def run(path: Path, listener: Listener | None = None) -> LoopSummary:
    settings = LoopSettings.load(path)
    with anyio.fail_after(240):
        return await Supervisor(settings, home=path.parent, report=listener or Listener()).run()


async def test_a_loop_runs_to_its_end_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    listener = Listener()
    summary = await run(config(folder), listener)
    assert (summary.rounds, summary.steered, summary.restarts) == (4, 0, 0)
    assert len(summary.versions) == 4
    assert living(folder) == {}
    assert [tag.round for tag in listener.tags] == [0, 1, 2, 3]
    assert RoundTags(folder).read(0) == listener.tags[0]
    assert listener.tags[0].constant == 0.5
    versions = {
        (record.source.identity.round, record.source.critic_version)
        for record in read_critic_records(folder / "targets")
    }
    assert versions == {(tag.round, f"constant-{tag.constant:g}") for tag in listener.tags}


@pytest.mark.parametrize("staleness", [0, 1, 2])
async def test_a_round_waits_until_the_critic_has_seen_enough(
    tmp_path: Path, staleness: int
) -> None:
    folder = tmp_path / "loop"
    listener = Listener()
    await run(config(folder, rounds=5, staleness=staleness), listener)
    for tag in listener.tags:
        seen = 0 if tag.snapshot is None else int(tag.snapshot[-4:])
        assert seen >= tag.round - staleness


async def test_what_dies_is_brought_back_and_nothing_is_done_twice(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    path = config(folder, rounds=16, staleness=0)
    killed = {"trainer": 0, "actor": 0}

    class Killer(Listener):
        def decided(self, tag: RoundTag) -> None:
            name = "trainer" if tag.round % 8 == 3 else "actor"
            if tag.round % 8 in (3, 7) and name in (found := living(folder)):
                os.kill(found[name], signal.SIGKILL)
                killed[name] += 1

    summary = await run(path, Killer())
    assert min(killed.values()) >= 2
    assert summary.rounds == 16
    store = SnapshotStore(folder / "critics")
    ids = [i for v in store.versions() for i in store.load(v).record_ids()]
    assert len(ids) == len(set(ids)) == 16 * 3


def test_a_killed_supervisors_successor_goes_on_with_the_same_children(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    path = config(folder, rounds=12, staleness=0)
    with supervising(path) as first:
        until(first, "round 1:")
        first.kill()
        first.wait(timeout=60)
        before = living(folder)
        assert set(before) == {"trainer", "actor"}
    # The block above ended the orphans, as `focus loop --stop` does; now the other way.
    with supervising(path) as second:
        until(second, "round 3:")
        second.kill()
        second.wait(timeout=60)
        before = living(folder)
        with supervising(path) as third:
            for name in before:
                until(third, f"{name} found running, going on with it")
            _, said = third.communicate(timeout=240)
            assert third.returncode == 0
            assert "started" not in said[: said.index("round 11:")]
        assert living(folder) == {}
    assert RoundTags(folder).rounds() == tuple(range(12))


async def test_no_critic_is_trained_on_a_round_that_may_still_be_taken_back(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "loop"
    path = config(folder, actor=[sys.executable, "-c", "import time; time.sleep(600)"])
    with supervising(path) as process:
        until(process, "actor started")
        assert set(living(folder)) == {"actor"}
        write_round(JsonlDirectory(folder / "targets"), 0, "constant-0.5")
        until(process, "trainer started")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_soon(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "loop"
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    path = config(folder, actor=[sys.executable, "-c", stubborn])
    with supervising(path) as process:
        until(process, "actor started")
        assert "actor" in living(folder)
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
        assert living(folder) == {}


def test_stop_ends_what_a_killed_supervisor_left(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    path = config(folder, actor=[sys.executable, "-c", "import time; time.sleep(600)"])
    write_round(JsonlDirectory(folder / "targets"), 0, "constant-0.5")
    with supervising(path) as process:
        until(process, "actor started")
        process.kill()
        process.wait(timeout=60)
        assert set(living(folder)) == {"trainer", "actor"}
        done = subprocess.run([*FOCUS, "loop", str(path), "--stop"], capture_output=True, text=True)
        assert done.stdout == "2 processes ended\n"
        assert living(folder) == {}


async def test_a_child_that_dies_too_often_ends_the_loop(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    path = config(
        folder, actor=[sys.executable, "-c", "print('no such data set'); raise SystemExit(3)"]
    )
    text = path.read_text().replace("most = 20", "most = 2")
    path.write_text(text)
    with pytest.raises(LifecycleError, match=r"actor ended with exit code 3, 3 times.*actor\.log"):
        await run(path)
    assert (folder / "logs" / "actor.log").read_text() == "no such data set\n" * 3
    assert living(folder) == {}


async def test_a_command_that_is_none_is_named(tmp_path: Path) -> None:
    path = config(tmp_path / "loop", actor=["./no-such-launcher"])
    with pytest.raises(ConfigError, match=r"cannot start './no-such-launcher'"):
        await run(path)


async def test_one_supervisor_per_folder(tmp_path: Path) -> None:
    path = config(tmp_path / "loop", actor=[sys.executable, "-c", "import time; time.sleep(600)"])
    with supervising(path) as process:
        until(process, "actor started")
        with pytest.raises(StoreError, match="another focus loop runs here"):
            await run(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "folder is missing"),
        ("folder = 3", "folder wants str"),
        ("folder = 'x'\nstalenes = 1", "unknown 'stalenes'"),
        ("folder = 'x'\nstaleness = -1", "staleness must be >= 0"),
        ("folder = 'x'\nstaleness = 'one'", "staleness wants int"),
        ("folder = 'x'\nfirst_constant = 2", r"must lie in \[0, 1\]"),
        ("folder = 'x'\nactor = 'train.sh'", "actor is a table"),
        ("folder = 'x'\n[actor]\ncommand = 'train.sh'", "actor.command wants a list of words"),
        ("folder = 'x'\n[restart]\nmost = 0", "restart.most must be >= 1"),
        ("folder = 'x'\n[restart]\nwithin_s = 0", "restart.within_s must be > 0"),
        ("folder = 'x'\n[server]\nport = true", "server.port wants int"),
        ("folder = ", "Invalid value"),
    ],
)
def test_a_config_that_cannot_be_honoured_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "loop.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        LoopSettings.load(path)


def test_paths_of_a_config_are_below_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "loop.toml"
    path.write_text('folder = "run"\noutcomes = "/data/outcomes"\n[restart]\nwithin_s = 60\n')
    settings = LoopSettings.load(path)
    assert settings.folder == str(tmp_path / "run")
    assert settings.records == str(tmp_path / "run" / "targets")
    assert settings.outcomes == "/data/outcomes"
    assert settings.restart == RestartSettings(within_s=60.0)


def test_the_files_that_the_how_to_shows_are_valid(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "close-the-loop.md"
    shown = re.findall(r'^```toml title="loop.toml"\n(.*?)^```', page.read_text(), re.S | re.M)
    assert len(shown) == 2
    for number, text in enumerate(shown):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        assert LoopSettings.load(path).folder.endswith("loop")
