"""`focus bench`: what FOCUS does, measured on this machine from a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ("bench_app", "closed_loop")

bench_app: typer.Typer = typer.Typer(name="bench", no_args_is_help=True, rich_markup_mode=None)


@bench_app.callback()
def about() -> None:
    """Measure FOCUS on this machine. Needs a checkout of the repository: bench/ holds the code."""


def closed_loop(
    quick: Annotated[
        bool, typer.Option("--quick", help="3 rounds and 3 seeds instead of 10 and 5.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for stores, records and logs; a new one below /tmp.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds per seed.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Loops, one after the other.")] = None,
) -> None:
    """Close the loop, unattended, and measure what the critic is worth at the end.

    For each seed, focus loop runs Slime's strict stand-in as the actor with a critic's
    trainer and server beside it. Then the last critic and a frozen constant collect the
    same held-out problems under the same token budget: mixed_ratio is the share of
    problems with both outcomes among their finished leaves, brier the squared error on
    fresh outcomes.

    \b
    Example:
      focus bench closed-loop --quick --json closed-loop.json
    """
    import subprocess
    import sys

    root = _checkout()
    words = [sys.executable, "-m", "bench.closed_loop", *(["--quick"] if quick else [])]
    for name, value in (("--json", json_file), ("--out", out)):
        words += [] if value is None else [name, str(value.absolute())]
    for name, number in (("--rounds", rounds), ("--seeds", seeds)):
        words += [] if number is None else [name, str(number)]
    code = subprocess.run(words, cwd=root).returncode
    if code:
        raise typer.Exit(code)


bench_app.command(name="closed-loop", short_help="Actor and critic in a loop, against a constant.")(
    closed_loop
)


def _checkout() -> Path:
    """The repository that this package was installed from.

    Raises:
        ConfigError: it was installed without one.
    """
    import focus
    from focus.errors import ConfigError

    root = Path(focus.__file__).resolve().parents[2]
    if not (root / "bench" / "closed_loop").is_dir():
        raise ConfigError(
            "focus bench runs code of the repository, which is not here: clone it and install "
            "it with pip install -e '.[dev]'"
        )
    return root
