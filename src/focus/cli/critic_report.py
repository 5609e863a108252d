"""`focus critic report`: what is in a store, and how good it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from focus.critic.snapshot import Snapshot
    from focus.viz.critics import Shown

__all__ = ("report",)


def report(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of published critics.")],
    version: Annotated[
        str | None, typer.Option(help="Show this one in depth.  [default: the newest]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write one HTML page with plots.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every byte; exit code 1 on damage.")
    ] = False,
) -> None:
    """Look at the critics of a store: errors against constants, calibration, verdicts.

    The version marked * is current: collectors take it. Held-out error is on held-out
    regression targets; all else is on fresh outcomes. Brier: the critic's squared error;
    constant, depth: that of the best constant, overall and per depth; gain: constant minus
    Brier; bias: mean value minus mean outcome; excess: Brier minus what the critic's own
    values claim, above 0 where it is over-confident.

    \b
    Examples:
      focus critic report runs/critics
      focus critic report runs/critics --html critics.html
    """
    from focus.critic.store import SnapshotStore
    from focus.errors import StoreError
    from focus.records.files import write_whole

    critics = SnapshotStore(store)
    snapshots = [critics.manifest(name) for name in critics.versions()]
    if not snapshots:
        raise StoreError(f"{store}: nothing is published here yet (focus critic train)")
    if verify:
        _verify(critics.verify())
    shown = [_shown(snapshot) for snapshot in snapshots]
    pointer = critics.current()
    current = None if pointer is None else pointer.version
    chosen = critics.manifest(version).version if version else snapshots[-1].version
    if html is not None:
        from focus.viz.critic_plots import critics_html

        page = critics_html(shown, current=current, chosen=chosen)
        write_whole(html, page.encode(), overwrite=True)
    if as_json:
        _print_json(snapshots, current)
    else:
        _print(shown, current, chosen, html)


def _shown(snapshot: Snapshot) -> Shown:
    from focus.training.judgement import read_judgement
    from focus.viz.critics import Shown

    plain = snapshot.facts.judgement
    found = None if plain is None else read_judgement(plain, where=str(snapshot.folder))
    return Shown(snapshot, found)


def _verify(damages: tuple[Any, ...]) -> None:
    from focus.cli.boundary import complain

    for damage in damages:
        complain(damage.reason)
    if damages:
        raise typer.Exit(1)


def _print_json(snapshots: list[Snapshot], current: str | None) -> None:
    from focus.records.strict_json import dumps

    rows = [
        {
            "version": snapshot.version,
            "created": snapshot.created,
            "steering": snapshot.verdict.steering,
            "reason": snapshot.verdict.reason,
            "parent": snapshot.facts.parent,
            "constant": snapshot.facts.constant,
            "records": snapshot.facts.records.count,
            "judgement": snapshot.facts.judgement,
            "metrics": dict(snapshot.facts.metrics),
        }
        for snapshot in snapshots
    ]
    typer.echo(dumps({"current": current, "versions": rows}, what="report").decode())


def _print(shown: list[Shown], current: str | None, chosen: str, html: Path | None) -> None:
    from focus.cli.terminal import glyphs_for, result_console, show, typed
    from focus.viz.critics import CriticPage, versions_table

    console = result_console()
    glyphs = glyphs_for(console)
    show(console, versions_table(shown, current=current, glyphs=glyphs), glyphs=glyphs)
    console.print()
    console.print(chosen, style="bold", markup=False)
    one = next(one for one in shown if one.snapshot.version == chosen)
    show(console, CriticPage(one, glyphs), glyphs=glyphs)
    if html is not None:
        console.print(f"\npage: {typed(html.resolve())}", markup=False, soft_wrap=True)
