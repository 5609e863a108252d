"""Command lines of container engines, and what runs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from focus.errors import ConfigError, EnvError

__all__ = ("DOCKER", "PODMAN", "Command", "Engine", "Finished", "run_command")

_HOLES = ("program", "name", "image", "archive", "mark")


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended: its exit code and what it printed."""

    code: int
    stdout: bytes
    stderr: bytes


Command = Callable[[Sequence[str], bytes], Awaitable[Finished]]
"""Runs a command line with this on its stdin, to its end."""


async def run_command(line: Sequence[str], stdin: bytes) -> Finished:
    """Run a command on this machine; a cancellation kills it."""
    try:
        done = await anyio.run_process(list(line), input=stdin, check=False)
    except OSError as error:
        raise EnvError(f"{line[0]} cannot be run: {error.strerror}; is it installed?") from error
    return Finished(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How one engine starts, calls, saves, loads and removes a container.

    Each line may hold ``{program}``, ``{name}`` (of the container), ``{image}``,
    ``{archive}`` (path of one saved state) and ``{mark}`` (the same as a name for an image).

    Attributes:
        program: the engine, or a path to it.
        start: a container of the image; it must stay up by itself.
        call: a program inside it; the program's own words follow.
        save: its state, while it goes on running.
        load: a new container in that state.
        remove: a container, running or not.
        discard: a saved state.

    Raises:
        ConfigError: a line is empty or has an unknown hole.
    """

    program: str
    start: tuple[str, ...]
    call: tuple[str, ...]
    save: tuple[str, ...]
    load: tuple[str, ...]
    remove: tuple[str, ...]
    discard: tuple[str, ...]

    def __post_init__(self) -> None:
        for step in ("start", "call", "save", "load", "remove", "discard"):
            line: tuple[str, ...] = getattr(self, step)
            if not line:
                raise ConfigError(f"engine {self.program}: {step} has no command line")
            try:
                self.line(line, **dict.fromkeys(_HOLES[1:], ""))
            except (KeyError, IndexError, ValueError) as error:
                raise ConfigError(
                    f"engine {self.program}: {step} {' '.join(line)!r} has another hole than "
                    f"{', '.join(_HOLES)}"
                ) from error

    def line(self, words: Sequence[str], **holes: str) -> list[str]:
        """A command line with its holes filled.

        >>> PODMAN.line(PODMAN.remove, name="a")
        ['podman', 'rm', '--force', '--time', '0', 'a']
        """
        return [word.format(program=self.program, **holes) for word in words]


PODMAN: Engine = Engine(
    program="podman",
    start=("{program}", "run", "--detach", "--name", "{name}", "{image}"),
    call=("{program}", "exec", "--interactive", "{name}"),
    save=(
        "{program}",
        "container",
        "checkpoint",
        "--leave-running",
        "--export",
        "{archive}",
        "{name}",
    ),
    load=("{program}", "container", "restore", "--import", "{archive}", "--name", "{name}"),
    remove=("{program}", "rm", "--force", "--time", "0", "{name}"),
    discard=("rm", "-f", "{archive}"),
)
"""Podman with CRIU: processes, memory and files."""

DOCKER: Engine = Engine(
    program="docker",
    start=("{program}", "run", "--detach", "--name", "{name}", "{image}"),
    call=("{program}", "exec", "--interactive", "{name}"),
    save=("{program}", "commit", "{name}", "{mark}"),
    load=("{program}", "run", "--detach", "--name", "{name}", "{mark}"),
    remove=("{program}", "rm", "--force", "{name}"),
    discard=("{program}", "image", "rm", "--force", "{mark}"),
)
"""Docker by commit: files only; a fork starts the image's command anew."""
