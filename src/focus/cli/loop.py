"""`focus loop`: critic trainer, critic server and the actor's job as one thing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from focus.cli.progress import WorkProgress
    from focus.loop.settings import LoopSettings
    from focus.loop.supervisor import LoopSummary
    from focus.loop.tags import RoundTag

__all__ = ("loop",)


def loop(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="TOML file of the loop.")],
    stop: Annotated[
        bool, typer.Option("--stop", help="End what a killed supervisor left running.")
    ] = False,
) -> None:
    """Close the loop: train the critic on each round's records and let it steer the next.

    Starts the critic's trainer and server beside your actor's job, decides which critic
    each round collects with, and restarts what dies. Stop it with Ctrl-C and start it
    again with the same file at any time: it goes on where it was, and so it does after it
    was killed. docs/reference/loop.md lists the settings.

    \b
    Example of a file:
      folder = "runs/loop"
      [actor]
      command = ["bash", "launch_slime.sh"]
    """
    from focus.loop.settings import LoopSettings
    from focus.loop.supervisor import Supervisor

    settings = LoopSettings.load(config)
    if stop:
        ended = Supervisor.end_orphans(settings)
        typer.echo(f"{ended} process{'es' * (ended != 1)} ended")
        return
    _run(settings, config)


def _run(settings: LoopSettings, config: Path) -> None:
    import anyio

    from focus.cli.boundary import say_stopped
    from focus.cli.progress import progress_on
    from focus.cli.terminal import progress_console, result_console, typed

    with progress_on(progress_console()) as progress:
        summary = anyio.run(_supervise, settings, config.absolute().parent, progress)
    if isinstance(summary, int):
        say_stopped(f"go on with: focus loop {typed(config)}")
        raise typer.Exit(128 + summary)
    console = result_console()
    for name, value in _rows(summary, settings):
        console.print(f"{name:<10}{value}", markup=False, soft_wrap=True)


async def _supervise(
    settings: LoopSettings, home: Path, progress: WorkProgress
) -> LoopSummary | int:
    """The loop's summary, or the signal that ended it."""
    import signal

    import anyio

    from focus.loop.supervisor import Supervisor

    summary: LoopSummary | int = signal.SIGINT
    supervisor = Supervisor(settings, home=home, report=_Report(progress))
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as group:

            async def stop_at_signal() -> None:
                nonlocal summary
                async for number in signals:
                    summary = int(number)
                    group.cancel_scope.cancel()

            group.start_soon(stop_at_signal)
            summary = await supervisor.run()
            group.cancel_scope.cancel()
    return summary


def _rows(summary: LoopSummary, settings: LoopSettings) -> list[tuple[str, Any]]:
    return [
        ("rounds", f"{summary.rounds}, {summary.steered} of them steered by a critic"),
        ("critics", f"{len(summary.versions)} published in {settings.store}"),
        ("restarts", summary.restarts),
        ("logs", f"{settings.folder}/logs"),
    ]


class _Report:
    """What happened as lines, how it stands as a status."""

    def __init__(self, progress: WorkProgress) -> None:
        self._progress = progress

    def say(self, text: str) -> None:
        self._progress.say(text)

    def decided(self, tag: RoundTag) -> None:
        critic = tag.snapshot if tag.steering else f"constant {tag.constant:g}"
        self._progress.say(f"round {tag.round}: {critic} ({tag.reason})")

    def status(self, text: str) -> None:
        self._progress.status(text)
