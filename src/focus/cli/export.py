"""`focus export`: a run's tables for other tools, or its rounds for a tracker of experiments."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focus.cli.progress import WorkProgress
    from focus.cli.runs import RunFiles

__all__ = ("Format", "export")


class Format(StrEnum):
    """What a run can be turned into."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    TENSORBOARD = "tensorboard"
    TRACKIO = "trackio"
    WANDB = "wandb"


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    to: Annotated[Format, typer.Option(help="Files of tables, or a tracker of experiments.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where files go.  [default: RUN/export]")
    ] = None,
    project: Annotated[str, typer.Option(help="Of a tracker.")] = "focus",
    name: Annotated[
        str | None, typer.Option(help="Of the run, in a tracker.  [default: the folder's]")
    ] = None,
) -> None:
    """Turn a run into tables of rounds, trees, nodes and launches, or log its rounds elsewhere.

    Tables hold everything that `focus view` shows, exact tokens and log-probs included. A
    tracker gets every number of every round, under the name it has in metrics.jsonl.

    \b
    Examples:
      focus export runs/demo --to parquet --out demo-tables
      focus export runs/demo --to trackio --project arithmetic
    """
    from focus.cli.progress import progress_on
    from focus.cli.runs import read_run
    from focus.cli.terminal import progress_console, result_console, typed

    run = read_run(path)
    folder = out or path / "export"
    with progress_on(progress_console()) as progress:
        if to in (Format.JSONL, Format.PARQUET):
            said = _tables(run, to.value, folder, progress)
        else:
            said = _rounds(run, to.value, folder, project=project, name=name or run.root.name)
    where = "" if to is Format.TRACKIO else f" ({typed(folder)})"
    result_console().print(f"{said}{where}", markup=False, soft_wrap=True)


def _tables(run: RunFiles, kind: str, folder: Path, progress: WorkProgress) -> str:
    """One file per table; trees are read one at a time."""
    from focus.exports import TABLES, WRITERS, launch_rows, node_rows, round_rows, tree_rows
    from focus.records.tree_store import load_stored_tree

    folder.mkdir(parents=True, exist_ok=True)
    makers = {"trees": tree_rows, "nodes": node_rows, "launches": launch_rows}
    with ExitStack() as stack:
        write = {
            name: stack.enter_context(WRITERS[kind](folder / f"{name}.{kind}", columns))
            for name, columns in [*TABLES.items(), ("rounds", None)]
        }
        if run.kind == "training":
            write["rounds"](list(round_rows(run.rows)))
        for done, path in enumerate(run.trees):
            progress.stage("read trees", done, len(run.trees))
            stored = load_stored_tree(path)
            for name, rows in makers.items():
                write[name](list(rows(str(path.relative_to(run.root)), stored)))
    return f"wrote {', '.join(sorted(f'{name}.{kind}' for name in write))}"


def _rounds(run: RunFiles, kind: str, folder: Path, *, project: str, name: str) -> str:
    from focus.errors import ConfigError
    from focus.exports import TrackedRun, track

    if run.kind != "training":
        raise ConfigError(f"{run.root} has no rounds; --to jsonl and --to parquet take it")
    told = TrackedRun(project=project, name=name, settings=run.settings, folder=folder)
    rounds = track(kind, told, run.rows)
    return f"logged {rounds} rounds to {kind}"
