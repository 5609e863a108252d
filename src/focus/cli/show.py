"""`focus show`: one tree, or the overview of a run with its most telling tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from focus.cli.runs import RunFiles
    from focus.viz.page import PageOptions

__all__ = ("show",)

_EXAMPLE_NODES = 60
_TREES_LISTED = 8


def show(
    path: Annotated[
        Path, typer.Argument(metavar="TREE|RUN", help="A tree file, or the folder of a run.")
    ],
    node: Annotated[
        int | None, typer.Option(min=0, help="All about one node, and what is below it.")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=0, help="Most edges below the start.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Most nodes; 0 is all.  [default: 200; 60 in a run's example]"),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII without colours.")] = False,
) -> None:
    """Look at a rollout tree, or at a run of `focus train` or `focus collect`.

    A tree shows per node: advantage A of the edge into it, critic value V and its refinement
    by the evidence (or the outcome), tokens and text; above each expansion, why it was bought.

    \b
    Examples:
      focus show runs/demo
      focus show runs/demo/trees/round-0003/tree-000.json --node 12
    """
    from focus.cli.runs import kind_of, read_run
    from focus.cli.terminal import glyphs_for, result_console
    from focus.viz.page import PageOptions

    console = result_console(plain=plain)
    is_tree = kind_of(path) == "tree"
    default = 200 if is_tree else _EXAMPLE_NODES
    options = PageOptions(
        node=node,
        depth=depth,
        limit=default if limit is None else limit,
        width=console.width,
        glyphs=glyphs_for(console, plain=plain),
    )
    if is_tree:
        _tree(console, path, options)
    elif node is not None:
        raise typer.BadParameter("--node looks into one tree: name its file")
    else:
        _run(console, read_run(path), options)


def _tree(console: Console, path: Path, options: PageOptions) -> None:
    from focus.cli.terminal import show as print_out
    from focus.records.tree_store import load_stored_tree
    from focus.viz.page import tree_page

    stored = load_stored_tree(path)
    last = len(stored.tree) - 1
    if options.node is not None and options.node > last:
        raise typer.BadParameter(f"--node {options.node}: the tree has nodes 0 to {last}")
    print_out(console, tree_page(stored, options), glyphs=options.glyphs)


def _run(console: Console, run: RunFiles, options: PageOptions) -> None:
    from focus.cli.runs import read_trees
    from focus.cli.terminal import show as print_out
    from focus.cli.terminal import typed
    from focus.viz.page import best_example, tree_page
    from focus.viz.run import collection_overview, training_overview, trees_table

    glyphs, folder = options.glyphs, typed(run.root)
    overview = training_overview if run.kind == "training" else collection_overview
    page = overview(run.settings, run.rows, run.summary, folder=folder, glyphs=glyphs)
    print_out(console, page, glyphs=glyphs)
    trees = read_trees(run.trees[-_TREES_LISTED:], run.root)
    best = best_example(trees)
    if best is None:
        return
    console.print()
    print_out(console, trees_table(trees, best=best, glyphs=glyphs), glyphs=glyphs)
    hidden = len(run.trees) - len(trees)
    if hidden:
        console.print(f"and {hidden} earlier ones in {typed(run.root / 'trees')}", markup=False)
    console.print()
    console.print(f"{typed(run.root / best)}", style="bold", markup=False, soft_wrap=True)
    print_out(console, tree_page(trees[best], options), glyphs=glyphs)
