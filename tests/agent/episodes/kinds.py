"""One environment of each kind, on episodes that say back all they have heard."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from focus.agent import StepResult
from focus.agent.episodes import (
    DOCKER,
    PODMAN,
    ContainerEnv,
    CopiedEnv,
    DirectoryEnv,
    Engine,
    Finished,
    ProcessEnv,
    ReplayedEnv,
    run_command,
)
from focus.problem import Message, Problem
from focus.testing.episodes import FolderTape, Tape, heard

HERE = Path(__file__).parent
PROBLEM = Problem(id="p", prompt="Talk.")

Words = tuple[str, ...]


class ValueEnv:
    """The default kind: states are values, so nothing forks and nothing is released."""

    async def reset(self, problem: Problem) -> tuple[Words, tuple[Message, ...]]:
        return (), problem.messages

    async def step(self, state: Words, action: Any, workspace: object) -> StepResult:
        words = (*state, heard(action))
        if words[-1].endswith("stop"):
            return StepResult(words, reward=self._share(words), done=True)
        return StepResult(words, (Message("user", " ".join(words)),))

    async def finish(self, state: Words, workspace: object, reason: str) -> float:
        return self._share(state)

    async def snapshot(self, state: Words) -> list[str]:
        return list(state)

    async def restore(self, snapshot: list[str]) -> Words:
        return tuple(snapshot)

    @staticmethod
    def _share(words: Words) -> float:
        said = "".join(words)
        return said.count("+") / max(1, len(said))


@dataclass
class FakeEngine:
    """A container engine on this machine: a shell script, its images and containers."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("images/tape", "containers", "archives"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "fake_episode.sh", self.folder / "images" / "tape" / "episode")

    async def run(self, line: Any, stdin: bytes) -> Finished:
        return await run_command(["env", f"FAKE_ENGINE={self.folder}", *line], stdin)

    def env(self, engine: Engine = PODMAN, **options: Any) -> ContainerEnv:
        own = replace(engine, program=str(HERE / "fake_engine.sh"))
        archives = self.folder / "archives"
        return ContainerEnv("tape", engine=own, run=self.run, archives=archives, **options)

    @staticmethod
    def left_in(folder: Path) -> list[str]:
        """Containers, saved states and images that a user did not make."""
        found = [path for name in ("containers", "archives") for path in (folder / name).iterdir()]
        images = (path for path in (folder / "images").iterdir() if path.name != "tape")
        return sorted(path.name for path in (*found, *images))


def makers(folder: Path) -> dict[str, Callable[[], Any]]:
    """What makes an environment, by kind; fakes of an engine live below `folder`."""
    source = folder / "source"
    if not source.exists():
        (source / "deep").mkdir(parents=True)
        (source / "deep" / "notes").write_text("given")
        os.symlink("deep/notes", source / "inside")
    podman, docker = FakeEngine(folder / "podman"), FakeEngine(folder / "docker")
    return {
        "value": ValueEnv,
        "copied": lambda: CopiedEnv(Tape),
        "replayed": lambda: ReplayedEnv(Tape),
        "directory": lambda: DirectoryEnv(FolderTape, source=source),
        "process": lambda: ProcessEnv("focus.testing.episodes:Tape", arguments={"seed": 3}),
        "podman": podman.env,
        "docker": lambda: docker.env(DOCKER),
    }


KINDS = ("value", "copied", "replayed", "directory", "process", "podman", "docker")
