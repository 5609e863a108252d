"""Consoles for what is printed: results on stdout, progress beside them."""

from __future__ import annotations

import io
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from focus.viz.glyphs import Glyphs

__all__ = (
    "glyphs_for",
    "next_step",
    "progress_console",
    "quiet_libraries",
    "result_console",
    "show",
    "survive_any_text",
    "typed",
)

_PIPE_WIDTH = 100


def quiet_libraries() -> None:
    """No bars and hints of other packages inside ours; must run before they are imported."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def survive_any_text() -> None:
    """Escape what the terminal's encoding lacks, instead of failing half-way through a page."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def result_console(*, plain: bool = False) -> Console:
    """Stdout. In a pipe: no control codes, and a width of its own unless COLUMNS is set."""
    from rich.console import Console

    if not plain and sys.stdout.isatty():
        return Console(file=sys.stdout, highlight=False)
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(
        file=sys.stdout, no_color=True, force_terminal=False, highlight=False, width=width
    )


def progress_console() -> Console:
    """Stderr, so that progress never mixes with a result."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False)


def glyphs_for(console: Console, *, plain: bool = False) -> Glyphs:
    """Unicode signs where the stream can carry them."""
    from focus.viz.glyphs import ASCII, UNICODE

    return ASCII if plain or not console.encoding.startswith("utf") else UNICODE


def show(console: Console, renderable: RenderableType, *, glyphs: Glyphs) -> None:
    """Print, with guides in the same alphabet as the signs; in a pipe, no trailing blanks."""
    from focus.viz.ascii import AsciiGuides

    drawn = AsciiGuides(renderable) if glyphs.ascii_only else renderable
    if console.is_terminal:
        console.print(drawn)
        return
    with console.capture() as page:
        console.print(drawn, crop=False)
    for line in page.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def next_step(console: Console, command: str) -> None:
    """A command to copy: never wrapped."""
    console.print(f"next: {command}", markup=False, style="bold", soft_wrap=True)


def typed(path: Path) -> str:
    """A path as a user would type it here: relative where it can be, quoted where it must."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
