"""`focus view`: a run, its trees and its search in the browser, live or as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focus.cli.view_source import ViewSource

__all__ = ("view",)


def view(
    path: Annotated[
        Path, typer.Argument(metavar="RUN|TREE", help="The folder of a run, or a tree file.")
    ],
    compare: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A second run, shown beside the first.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one HTML file that needs no server."),
    ] = None,
    trees: Annotated[
        int | None, typer.Option(min=0, help="Most trees per run, the latest.  [default: all]")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Model or folder whose tokenizer splits text into tokens.  [default: the run's]",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, open no browser.")
    ] = False,
) -> None:
    """Look at a run in the browser: rounds, trees, tokens, credit and how the search went.

    Without --export the page follows a run that is still training. It answers on this
    machine only; Ctrl-C ends it. An exported file carries everything, works offline and can
    be sent to others.

    \b
    Examples:
      focus view runs/demo
      focus view runs/demo --export demo.html
      focus view runs/demo --compare runs/other
    """
    from focus.cli.view_pieces import named_pieces
    from focus.cli.view_source import ViewSource

    paths = [path] if compare is None else [path, compare]
    piece = None if tokenizer is None else named_pieces(tokenizer)
    if export is None:
        _serve(ViewSource(paths, piece=piece, most=trees), path, port, is_opened=not no_open)
        return
    from focus.cli.progress import progress_on
    from focus.cli.terminal import progress_console

    with progress_on(progress_console()) as progress:
        source = ViewSource(
            paths,
            piece=piece,
            most=trees,
            advance=lambda done, total: progress.stage("read trees", done, total),
        )
        _export(source, path, export)


def _export(source: ViewSource, path: Path, target: Path) -> None:
    from focus.cli.terminal import result_console, typed
    from focus.records.files import write_whole
    from focus.viz.numbers import size
    from focus.viz.web.document import document

    run = source.run()
    page = "".join(document(title=_title(path), run=run, trees=source.trees()))
    data = page.encode("utf-8")
    write_whole(target.absolute(), data, overwrite=True)
    listed = sum(len(one["trees"]) for one in run["runs"])
    result_console().print(
        f"wrote {typed(target)}: {listed} trees, {size(len(data))}; open it in any browser",
        markup=False,
        soft_wrap=True,
    )


def _serve(source: ViewSource, path: Path, port: int, *, is_opened: bool) -> None:
    import webbrowser

    from focus.cli.boundary import say_stopped
    from focus.cli.terminal import result_console
    from focus.cli.view_server import ViewServer

    source.run()
    with ViewServer(source, title=_title(path), port=port) as server:
        console = result_console()
        console.print(f"{server.url}  (Ctrl-C ends it)", markup=False, soft_wrap=True)
        if is_opened and not webbrowser.open(server.url):
            console.print("no browser could be opened here: open that address in one")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say_stopped("the page is no longer served")


def _title(path: Path) -> str:
    return f"{path.absolute().name} · FOCUS"
