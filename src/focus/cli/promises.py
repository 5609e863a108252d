"""`focus promises`: what is promised, and what measuring it gives here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from focus.cli.progress import WorkProgress
    from focus.promises.base import Promise, Row, Size
    from focus.viz.glyphs import Glyphs

__all__ = ("promises", "verdict")


def promises(
    report: Annotated[
        bool, typer.Option("--report", help="Measure, instead of listing what is promised.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="What a release publishes, or seconds per row."),
    ] = False,
    only: Annotated[str | None, typer.Option(metavar="R1,F1", help="These rows only.")] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the rows here; - is stdout."),
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Keep full figures as those that the docs show.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII without colours.")] = False,
) -> None:
    """List what FOCUS promises, or measure it on this machine.

    Each row gives a figure, its target, how many trials it rests on and, for "0 of N", the
    95 % upper bound 3/N of the rate. Rows are measured one by one, each in a process of its
    own that is killed when it takes too long; an error in a row is a row that is not met. A
    row that nothing measures is not promised and says so. A quick report shows the stored
    full figure, with its date, where seconds cannot measure one.

    Exit code 0 when every measured promise was kept, 1 when one was broken.

    \b
    Examples:
      focus promises
      focus promises --report --quick --json promises.json
      focus promises --report --full --only F1,F2
    """
    from focus.cli.terminal import result_console
    from focus.promises.base import Size
    from focus.promises.rows import ROWS, chosen

    rows = ROWS if only is None else chosen(name.strip() for name in only.split(","))
    console = result_console(plain=plain)
    if not report:
        _list(console, rows, json_file, plain=plain)
        return
    if store and not full:
        raise typer.BadParameter("--store keeps full figures: give --full too")
    _report(console, rows, Size.FULL if full else Size.QUICK, json_file, (store, plain))


def _list(
    console: Console, promises: Sequence[Promise], json_file: Path | None, *, plain: bool
) -> None:
    from focus.cli.terminal import glyphs_for, next_step
    from focus.promises.stored import stored_rows

    wanted = {promise.id for promise in promises}
    rows = [row for row in stored_rows() if row.promise.id in wanted]
    if _write(rows, json_file):
        return
    _show(console, rows, glyphs_for(console, plain=plain))
    next_step(console, "focus promises --report --quick")


def _report(
    console: Console,
    promises: Sequence[Promise],
    size: Size,
    json_file: Path | None,
    switches: tuple[bool, bool],
) -> None:
    from focus.cli.interrupt import run_until_interrupted
    from focus.cli.terminal import glyphs_for, progress_console
    from focus.promises.report import broken
    from focus.promises.stored import store

    keep, plain = switches
    glyphs = glyphs_for(console, plain=plain)
    rows = run_until_interrupted(
        lambda progress: _measure(promises, size, progress, glyphs),
        console=progress_console(),
        last_words="no report was written",
    )
    if keep:
        store(rows)
    if not _write(rows, json_file):
        _show(console, rows, glyphs)
    if broken(rows):
        raise typer.Exit(1)


async def _measure(
    promises: Sequence[Promise], size: Size, progress: WorkProgress, glyphs: Glyphs
) -> list[Row]:
    from focus.promises.report import report

    def began(promise: Promise, done: int, of: int) -> None:
        progress.stage(promise.id, done, of, promise.promise)

    def ended(row: Row) -> None:
        if row.met is None:
            return
        sign, style = (glyphs.right, "green") if row.met else (glyphs.wrong, "bold red")
        told = f": {row.error}" if row.error else ""
        progress.say(f"{sign} {row.promise.id} {row.promise.promise}{told}", style=style)

    return await report(promises, size, began=began, ended=ended)


def _write(rows: Sequence[Row], json_file: Path | None) -> bool:
    """Write the rows, if a file was named; True when that was stdout."""
    import json

    from focus.promises.report import as_json
    from focus.records.files import write_whole

    if json_file is None:
        return False
    text = json.dumps(as_json(rows), indent=2, allow_nan=False) + "\n"
    if str(json_file) == "-":
        typer.echo(text, nl=False)
        return True
    json_file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(json_file, text.encode(), overwrite=True)
    return False


def _show(console: Console, rows: Sequence[Row], glyphs: Glyphs) -> None:
    from focus.cli.terminal import show
    from focus.promises.report import broken

    show(console, _table(rows, glyphs), glyphs=glyphs)
    for line in verdict(rows):
        style = "bold red" if broken(rows) else "bold"
        console.print(line, style=style, markup=False, soft_wrap=True)


def verdict(rows: Sequence[Row]) -> list[str]:
    """How many promises were kept, and what is wrong with those that were not."""
    from focus.promises.report import broken

    lost = broken(rows)
    kept = sum(row.met is True for row in rows)
    unmeasured = sum(row.met is None for row in rows)
    first = f"{kept} kept, {len(lost)} broken, {unmeasured} not promised"
    return [first, *(f"{row.promise.id}: {_why(row)}" for row in lost)]


def _why(row: Row) -> str:
    if row.measured is None:
        return row.error
    limit = "at most" if row.promise.better == "lower" else "at least"
    figure = f"{row.measured.figure:.4g} {row.promise.unit}"
    return f"{figure}; {limit} {row.promise.target:g} was promised"


def _table(rows: Sequence[Row], glyphs: Glyphs) -> Table:
    from rich.table import Table
    from rich.text import Text

    from focus.viz.numbers import count

    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in ("id", "promise", "figure", "target", "trials", "bound", "met", "measured on"):
        table.add_column(name, overflow="fold", justify=_side(name), no_wrap=name == "id")
    signs: dict[bool | None, Any] = {
        True: Text(glyphs.right, style="green"),
        False: Text(glyphs.wrong, style="bold red"),
        None: Text("-", style="dim"),
    }
    for row in rows:
        found = row.measured
        table.add_row(
            row.promise.id,
            Text(row.text, style="dim" if row.met is None else ""),
            "-" if found is None else f"{found.figure:.4g}",
            f"{'<=' if row.promise.better == 'lower' else '>='} {row.promise.target:g}",
            "-" if found is None else count(found.trials),
            "-" if row.bound is None else f"{row.bound:.2g}",
            signs[row.met],
            ", ".join(row.measured_on.split(", ")[:2]),
        )
    return table


def _side(column: str) -> Any:
    return "right" if column in ("figure", "target", "trials", "bound") else "left"
