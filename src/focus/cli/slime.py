"""`focus slime`: look over a launch script; close the books of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ("slime_app",)

slime_app: typer.Typer = typer.Typer(name="slime", no_args_is_help=True, rich_markup_mode=None)


@slime_app.callback()
def about() -> None:
    """Tools for training with Slime."""


@slime_app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A launch script, or its line.")],
) -> None:
    """Say what is wrong with a launch of Slime. The script is read, never run.

    One line per finding: a flag that Slime does not know (it ignores those without a word),
    a missing hook, a value that FOCUS cannot honour. Notes need no action. Exit code 0 when
    there is no finding, else 1.

    \b
    Example:
      focus slime check launch_slime.sh
    """
    from focus.errors import ConfigError
    from focus.integrations.slime._check import judge, launches, load_table
    from focus.viz.text import visible

    table = load_table()
    found = list(launches(file.read_text(encoding="utf-8", errors="replace")))
    if not found:
        raise ConfigError(f"{file}: no launch of Slime, that is no command with train.py")
    reports = [judge(launch, table) for launch in found]
    for report in reports:
        for finding in report.findings:
            typer.echo(visible(str(finding)))
        for note in report.notes:
            typer.echo(visible(f"note: {note}"))
    findings = sum(len(report.findings) for report in reports)
    flags = sum(len(launch.flags) for launch in found)
    unseen = sorted({name for launch in found for name in launch.elsewhere})
    summary = f"{file}: {flags} flags, {findings} finding{'s' * (findings != 1)}"
    summary += f" (flags of Slime {table.revision[:8]}, {table.date})"
    if unseen:
        summary += f"; not seen: {', '.join(unseen)}, defined elsewhere"
    typer.echo(visible(summary), err=True)
    if findings:
        raise typer.Exit(1)


@slime_app.command()
def accept(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The critic records of the run.")
    ],
    save: Annotated[Path, typer.Option(help="Slime's --save folder.")],
) -> None:
    """Let the critic records of every saved round count; for the end of a launch script.

    The hooks do this while the run goes on. After the last round nothing calls them any more.

    \b
    Example:
      focus slime accept /data/focus-slime-math/critic-targets \\
          --save /data/focus-slime-math/checkpoints
    """
    from focus.integrations.slime import accept_saved

    rounds = accept_saved(directory, save)
    listed = ", ".join(map(str, rounds)) or "no round that did not count before"
    typer.echo(f"{directory}: accepted {listed}")
