"""`focus collect`: trees and training records for a file of problems."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus.cli.packing import PackingName

if TYPE_CHECKING:
    from focus.cli.progress import WorkProgress
    from focus.records.problems import BadRow, ProblemFile
    from focus.training.collecting import CollectSettings, Refusal

__all__ = ("SOME_ROWS_LEFT", "Credit", "Sizes", "collect", "sizes_for")

SOME_ROWS_LEFT = 3
"""Exit code: trees were written, and some rows are bad or failed."""

_REASONS_SHOWN = 20


class Credit(StrEnum):
    """Estimator of actor weights and critic targets."""

    REFINED = "refined"
    DIRECT_BRANCH = "direct-branch"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of a segment, of a whole solution, and of a tree."""

    segment: int
    allowance: int
    tokens: int


def sizes_for(model: str) -> Sizes:
    """Defaults that suit a model: the built-in one writes short lines.

    >>> sizes_for("builtin").segment, sizes_for("runs/demo/models/final").segment
    (12, 256)
    """
    return Sizes(12, 96, 640) if model == "builtin" else Sizes(256, 4096, 16_384)


def collect(
    problems: Annotated[
        Path, typer.Option(help="JSONL rows of problem + solution, or prompt + label/answer.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for trees and records.")],
    model: Annotated[str, typer.Option(help="Model folder, builtin or smollm2.")] = "builtin",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    tokens: Annotated[
        int | None, typer.Option(help="Budget of one tree.  [default: 16384; builtin 640]")
    ] = None,
    segment: Annotated[
        int | None, typer.Option(help="Tokens per edge.  [default: 256; builtin 12]")
    ] = None,
    allowance: Annotated[
        int | None, typer.Option(help="Tokens per solution.  [default: 4096; builtin 96]")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(help="Expansions in flight per tree; part of the search.")
    ] = 4,
    capacity: Annotated[
        int, typer.Option(min=1, help="Requests in flight over all trees; changes time only.")
    ] = 64,
    temperature: Annotated[float, typer.Option(help="Of sampling; your trainer's own.")] = 1.0,
    critic: Annotated[
        float, typer.Option(metavar="VALUE", help="Constant value of every checkpoint.")
    ] = 0.5,
    credit: Annotated[Credit, typer.Option(help="Estimator.")] = Credit.REFINED,
    packing: Annotated[
        PackingName, typer.Option(help="A sample is an edge, a path's new edges, or a whole tree.")
    ] = PackingName.SEGMENT,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first rows.")] = None,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Keep trees with failed expansions.")
    ] = False,
) -> None:
    """Collect one tree per row of a file, with actor samples and critic targets.

    Bad rows are named with their line and do not stop the others. Repeating the command goes
    on where it stopped: rows that are whole in --out are not collected again.

    \b
    Exit codes: 0 every row has its tree; 1 nothing could be done; 2 wrong usage;
    3 trees were written, and some rows are bad or failed.

    \b
    Example:
      focus collect --problems algebra.jsonl --model builtin --out runs/trees --limit 50
    """
    from focus.records.problems import read_problems
    from focus.training.collecting import CollectSettings

    sizes = sizes_for(model)
    settings = CollectSettings(
        problems=str(problems.expanduser().resolve()),
        model=model,
        seed=seed,
        tokens=sizes.tokens if tokens is None else tokens,
        segment=sizes.segment if segment is None else segment,
        allowance=sizes.allowance if allowance is None else allowance,
        concurrency=concurrency,
        temperature=temperature,
        critic=critic,
        credit=credit.value,
        packing=packing.value,
    )
    file = read_problems(problems)
    _name_bad_rows(file.bad_rows)
    if not file.problems:
        from focus.errors import ProblemError

        raise ProblemError(f"{problems}: no usable row among {len(file.bad_rows)}")
    options = {"capacity": capacity, "limit": limit, "allow_partial": allow_partial}
    _run(settings, file, out.expanduser().resolve(), options)


def _name_bad_rows(rows: tuple[BadRow, ...]) -> None:
    for row in rows[:_REASONS_SHOWN]:
        typer.echo(f"line {row.line}: {row.reason}", err=True)
    if len(rows) > _REASONS_SHOWN:
        typer.echo(f"and {len(rows) - _REASONS_SHOWN} more bad rows (see index.jsonl)", err=True)


def _run(settings: CollectSettings, file: ProblemFile, out: Path, options: dict[str, Any]) -> None:
    from focus.cli.interrupt import run_until_interrupted
    from focus.cli.terminal import progress_console

    summary = run_until_interrupted(
        lambda progress: _collect(settings, file, out, options, progress),
        console=progress_console(),
        last_words="repeat the command to go on; whole rows are kept",
    )
    _report(summary, out)
    if not summary["collected"]:
        raise typer.Exit(1)
    if summary["bad"] or summary["failed"]:
        raise typer.Exit(SOME_ROWS_LEFT)


async def _collect(
    settings: CollectSettings,
    file: ProblemFile,
    out: Path,
    options: dict[str, Any],
    progress: WorkProgress,
) -> dict[str, Any]:
    """Settings are checked against the model before the folder is made."""
    from focus.policies.transformers import TransformersPolicy
    from focus.training.collecting import CollectRun
    from focus.training.collection_folder import CollectionFolder
    from focus.training.summary import versions

    progress.stage("load model", 0, 1)
    async with TransformersPolicy(
        settings.model,
        max_batch=options["capacity"],
        train_temperature=settings.temperature,
    ) as policy:
        settings.check(policy)
        wanted = {**settings.to_dict(), "policy_version": policy.version}
        folder = CollectionFolder.open(out, wanted, versions=versions())
        run = CollectRun(
            settings=settings,
            policy=policy,
            folder=folder,
            report=_Report(progress),
            **options,
        )
        return await run.run(file)


class _Report:
    """A bar over the rows, and a line for each that gave no tree."""

    def __init__(self, progress: WorkProgress) -> None:
        self._progress = progress

    def progress(self, done: int, total: int, tokens: int) -> None:
        from focus.viz.numbers import count

        self._progress.stage("collect", done, total, f"{count(tokens)} tokens")

    def refused(self, line: int, refusal: Refusal) -> None:
        from focus.viz.text import visible

        self._progress.say(f"line {line}: {visible(refusal.reason)}", style="red")


def _report(summary: dict[str, Any], out: Path) -> None:
    from focus.cli.terminal import glyphs_for, next_step, result_console, show, typed
    from focus.viz.facts import Facts
    from focus.viz.summaries import books_rows, collection_rows

    console = result_console()
    glyphs = glyphs_for(console)
    rows = [
        *collection_rows(summary, glyphs=glyphs),
        *books_rows(summary["ledger"]),
        ("files", f"{typed(out)}: trees/, actor/, critic/, index.jsonl"),
    ]
    show(console, Facts(rows), glyphs=glyphs)
    next_step(console, f"focus show {typed(out)}")
