"""The `focus` command line."""

from __future__ import annotations

from typing import Annotated

import typer

from focus.cli.bench import bench_app
from focus.cli.boundary import GuardedGroup
from focus.cli.check import check_app
from focus.cli.collect import collect
from focus.cli.credit import credit
from focus.cli.critic import critic_app
from focus.cli.doctor import doctor
from focus.cli.evaluate import evaluate
from focus.cli.export import export
from focus.cli.loop import loop
from focus.cli.models import models_app
from focus.cli.promises import promises
from focus.cli.serve import serve
from focus.cli.show import show
from focus.cli.slime import slime_app
from focus.cli.terminal import quiet_libraries, survive_any_text
from focus.cli.train import train
from focus.cli.view import view

__all__ = ("app",)

app: typer.Typer = typer.Typer(
    name="focus",
    cls=GuardedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from focus import __version__

        typer.echo(f"focus {__version__}")
        raise typer.Exit


@app.callback(epilog="Start with: focus doctor, then focus train --preset smoke --out runs/smoke")
def main(
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="FOCUS_DEBUG", help="Show tracebacks of errors."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Rollout trees, step-wise critics and exact-token credit for RL on LLM agents."""
    survive_any_text()
    quiet_libraries()


app.command(short_help="Train actor and critic on rollout trees.")(train)
app.command(name="eval", short_help="Measure a model on a task.")(evaluate)
app.command(short_help="Trees and records for a file of problems.")(collect)
app.command(short_help="Look at a tree or at a run.")(show)
app.command(short_help="Credit stored trees by other estimators.")(credit)
app.command(short_help="The same in the browser, live or as one file.")(view)
app.command(short_help="A run as tables, or its rounds for a tracker.")(export)
app.command(short_help="Serve a model to clients and routers.")(serve)
app.command(short_help="Keep a critic in step with your trainer.")(loop)
app.command(short_help="Check what this machine has and lacks.")(doctor)
app.command(short_help="What is promised, measured here.")(promises)
app.add_typer(check_app, name="check")
app.add_typer(critic_app, name="critic")
app.add_typer(bench_app, name="bench")
app.add_typer(models_app, name="models")
app.add_typer(slime_app, name="slime")
