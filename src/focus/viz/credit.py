"""Estimators side by side, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from focus.credit import Credit, Estimator
from focus.credit.comparison import Comparison, credits_of
from focus.records.tree_store import StoredTree
from focus.viz.numbers import fraction, signed
from focus.viz.text import clipped, visible

__all__ = ("comparison_table", "edges_table")

_TEXT = 32


def comparison_table(rows: Sequence[Comparison], *, trees: int) -> Table:
    """One line per estimator; one that refused every tree says why."""
    table = Table(box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("estimator", no_wrap=True)
    for name in ("trees", "edges", "not 0", "mean |A|", "spread", "cosine", "same sign"):
        table.add_column(name, justify="right", no_wrap=True)
    notes = []
    for row in rows:
        if not row.trees:
            table.add_row(row.name, *["n/a"] * 7)
        else:
            table.add_row(
                row.name,
                str(row.trees),
                str(row.edges),
                str(row.nonzero),
                fraction(row.mean_size),
                fraction(row.spread),
                fraction(row.cosine),
                fraction(row.same_sign),
            )
        notes += _notes(row, trees)
    table.caption = Text("\n".join(notes)) if notes else None
    table.caption_justify = "left"
    return table


def _notes(row: Comparison, trees: int) -> list[str]:
    if not row.refusals:
        return []
    reason, _ = max(row.refusals.items(), key=lambda item: item[1])
    refused = sum(row.refusals.values())
    share = "" if refused == trees else f" on {refused} of {trees} trees"
    return [f"{row.name} n/a{share}: {reason.partition(': ')[2] or reason}"]


def edges_table(stored: StoredTree, estimators: Mapping[str, Estimator]) -> Table:
    """The advantage of every edge under each estimator that accepts the tree."""
    found = credits_of(stored.tree, estimators)
    accepted = {name: c for name, c in found.items() if isinstance(c, Credit)}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("node", "from", *accepted):
        table.add_column(name, justify="right", no_wrap=True, min_width=max(6, len(name)))
    table.add_column("text", no_wrap=True, overflow="ellipsis")
    for node in stored.tree.edges():
        advantages = [signed(c.advantages.get(node.id)) for c in accepted.values()]
        text = clipped(visible(stored.texts.get(node.id, "")), _TEXT)
        table.add_row(str(node.id), str(node.parent), *advantages, Text(text))
    return table
