"""`focus credit`: stored trees, credited by other estimators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focus.credit import Estimator
    from focus.records.tree_store import StoredTree

__all__ = ("credit",)


def credit(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="TREE|RUN...", help="Tree files, or folders of runs."),
    ],
    wanted: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME[:OPTION=VALUE,...]",
            help="An estimator; repeat it to compare. The first one is the reference.  "
            "[default: all, direct-branch first]",
        ),
    ] = None,
    edges: Annotated[
        bool, typer.Option("--edges", help="The advantage of every edge; for a single tree.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers to this file.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII without colours.")] = False,
) -> None:
    """Credit stored trees again, with other estimators, without a new rollout.

    Estimators: direct-branch, refined, lambda, grpo, rloo, vine-ppo, spo-tree, tree-grpo,
    tree-rl. One that cannot read a tree says so. Shown per estimator: the size of its
    advantages, and how far they point where the reference's do.

    \b
    Examples:
      focus credit runs/demo
      focus credit tree.json --with direct-branch --with lambda:decay=0.5 --edges
    """
    from focus.cli.terminal import glyphs_for, result_console
    from focus.cli.terminal import show as print_out
    from focus.credit.comparison import compare
    from focus.viz.credit import comparison_table, edges_table

    estimators = _estimators(wanted)
    trees = _read(paths)
    if edges and len(trees) != 1:
        raise typer.BadParameter(f"--edges looks into one tree; {len(trees)} were given")
    rows = compare([stored.tree for stored in trees], estimators)
    if json_file is not None:
        _write(json_file, rows)
    console = result_console(plain=plain)
    glyphs = glyphs_for(console, plain=plain)
    if edges:
        print_out(console, edges_table(trees[0], estimators), glyphs=glyphs)
        console.print()
    print_out(console, comparison_table(rows, trees=len(trees)), glyphs=glyphs)


def _estimators(wanted: list[str] | None) -> dict[str, Estimator]:
    from focus.cli.settings import overrides
    from focus.credit.comparison import ESTIMATORS, estimator_named
    from focus.errors import ConfigError

    chosen: dict[str, Estimator] = {}
    for text in wanted or list(ESTIMATORS):
        name, _, options = text.partition(":")
        pairs = [pair for pair in options.split(",") if pair]
        if bad := [pair for pair in pairs if "=" not in pair]:
            raise ConfigError(f"--with {text}: {bad[0]!r} is no OPTION=VALUE")
        chosen[text] = estimator_named(name, overrides(pairs))
    return chosen


def _read(paths: list[Path]) -> list[StoredTree]:
    from focus.cli.runs import kind_of, read_run
    from focus.errors import StoreError
    from focus.records.tree_store import load_stored_tree

    files = [
        file
        for path in paths
        for file in ([path] if kind_of(path) == "tree" else read_run(path).trees)
    ]
    if not files:
        raise StoreError(f"{', '.join(map(str, paths))}: no stored trees in there")
    return [load_stored_tree(file) for file in files]


def _write(path: Path, rows: object) -> None:
    import dataclasses
    import json
    from typing import Any, cast

    from focus.records.files import write_whole

    listed = [dataclasses.asdict(row) for row in cast("list[Any]", rows)]
    write_whole(path, json.dumps({"estimators": listed}, indent=2).encode(), overwrite=True)
