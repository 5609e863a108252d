"""Overviews of a training run and of a collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from focus.records.tree_store import StoredTree
from focus.viz.facts import Facts
from focus.viz.glyphs import Glyphs
from focus.viz.numbers import fraction, signed
from focus.viz.rounds import rounds_view, trends
from focus.viz.summaries import books_rows, collection_rows, training_rows
from focus.viz.text import clipped, visible

__all__ = ("collection_overview", "training_overview", "trees_table")

_REASONS_SHOWN = 10
_PROMPT_CHARACTERS = 60

Settings = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def training_overview(
    settings: Settings,
    rows: Rows,
    summary: Mapping[str, Any] | None,
    *,
    folder: str,
    glyphs: Glyphs,
) -> RenderableType:
    """What was trained, every round, and the result (or how to go on)."""
    head: list[tuple[str, str]] = [("run", _setup(settings))]
    if summary is not None:
        head += training_rows(summary, glyphs=glyphs)
    else:
        head.append(("not finished", _how_to_go_on(settings, rows, folder)))
    if not rows:
        return Facts(head)
    return Group(Facts(head), Text(), rounds_view(rows), Text(), trends(rows, glyphs=glyphs))


def _setup(settings: Settings) -> str:
    names = ("task", "model", "seed", "rounds", "prompts", "tokens_per_prompt")
    return ", ".join(
        f"{name.replace('_', ' ')} {visible(str(settings[name]))}"
        for name in names
        if name in settings
    )


def _how_to_go_on(settings: Settings, rows: Rows, folder: str) -> str:
    return (
        f"{len(rows)} of {settings.get('rounds', '?')} rounds applied; "
        f"focus train --resume {folder} goes on"
    )


def collection_overview(
    settings: Settings,
    rows: Rows,
    summary: Mapping[str, Any] | None,
    *,
    folder: str,
    glyphs: Glyphs,
) -> RenderableType:
    """What was collected, at which cost, and which rows gave no tree."""
    names = ("problems", "model", "seed", "tokens", "segment", "allowance", "critic", "credit")
    listed = (f"{name} {visible(str(settings[name]))}" for name in names if name in settings)
    head: list[tuple[str, str]] = [("collection", ", ".join(listed))]
    if summary is not None:
        head += [*collection_rows(summary, glyphs=glyphs), *books_rows(summary["ledger"])]
    else:
        head.append(("not finished", f"repeat focus collect with --out {folder}"))
    return Group(Facts(head), *_without_tree(rows, glyphs))


def _without_tree(rows: Rows, glyphs: Glyphs) -> Iterator[Text]:
    refused = [row for row in rows if row.get("reason")]
    for row in refused[:_REASONS_SHOWN]:
        reason = visible(str(row["reason"]), ascii_only=glyphs.ascii_only)
        yield Text(f"line {row['line']}: {row['status']}: {reason}", style="red")
    if len(refused) > _REASONS_SHOWN:
        left = len(refused) - _REASONS_SHOWN
        yield Text(f"and {left} more without a tree (index.jsonl)", style="red")


def trees_table(trees: Mapping[str, StoredTree], *, best: str, glyphs: Glyphs) -> RenderableType:
    """One line per tree; the one drawn below is marked."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("tree", no_wrap=True, min_width=max(map(len, trees)))
    cells = {name: _tree_cells(name, stored, glyphs) for name, stored in trees.items()}
    for place, title in enumerate(("nodes", glyphs.right, glyphs.wrong, "root V", "largest A"), 1):
        width = max(len(title), *(len(row[place]) for row in cells.values()))
        table.add_column(title, justify="right", no_wrap=True, min_width=width)
    table.add_column("problem", no_wrap=True, overflow=glyphs.overflow)
    for name, row in cells.items():
        table.add_row(*row, style="bold" if name == best else "")
    return table


def _tree_cells(name: str, stored: StoredTree, glyphs: Glyphs) -> list[str | Text]:
    tree = stored.tree
    outcomes = [tree.outcome(node) for node in tree.terminals()]
    right = sum(1 for outcome in outcomes if outcome > 0)
    advantages = list(stored.credit.advantages.values()) if stored.credit else []
    prompt = " / ".join(m.content for m in tree.header.problem.messages if m.role != "system")
    shown = visible(prompt, ascii_only=glyphs.ascii_only)
    return [
        Text(name),
        str(len(tree)),
        str(right),
        str(len(outcomes) - right),
        fraction(tree.root.value),
        signed(max(advantages, key=abs, default=None)),
        Text(clipped(shown, _PROMPT_CHARACTERS, ellipsis=glyphs.open)),
    ]
