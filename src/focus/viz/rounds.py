"""Rounds of a training run as rows: one line each, under one header, below 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from focus.viz.glyphs import Glyphs
from focus.viz.numbers import count, duration, fraction, signed, sparkline

__all__ = ("ROUND_HEADER", "critic_note", "eta_s", "round_line", "rounds_view", "trends")


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int


_COLUMNS = (
    _Column("round", 5),
    _Column("success", 7),
    _Column("mixed", 5),
    _Column("critic Brier", 12),
    _Column("constant", 8),
    _Column("critic", 7),
    _Column("tokens", 6),
    _Column("tok/s", 5),
    _Column("time", 11),
)


def _joined(cells: Sequence[str]) -> str:
    return " ".join(cell.rjust(column.width) for cell, column in zip(cells, _COLUMNS, strict=True))


ROUND_HEADER = _joined([column.title for column in _COLUMNS])
"""Titles above lines of `round_line`."""


def round_line(metrics: Mapping[str, Any]) -> str:
    """One round's figures.

    success: mean outcome of rollouts from the root, bought before any adaptive choice.
    critic: "steers" when the learned critic chose checkpoints, "learns" before that.

    >>> print(ROUND_HEADER)
    round success mixed critic Brier constant  critic tokens tok/s        time
    >>> line = {"round": 2, "collection_success": 0.531, "mixed_ratio": 0.83, "collect_s": 12.0}
    >>> print(round_line(line | {"tokens_generated": 14210, "wall_s": 31.0}))
        2   0.531   83%            -        -  learns  14.2k 1.18k        31 s
    """
    return _joined(_cells(metrics))


def _cells(metrics: Mapping[str, Any]) -> list[str]:
    tokens, collect_s = metrics.get("tokens_generated", 0), metrics.get("collect_s", 0.0)
    mixed = metrics.get("mixed_ratio")
    return [
        str(metrics["round"]),
        fraction(metrics.get("collection_success")),
        "-" if mixed is None else f"{mixed:.0%}",
        fraction(metrics.get("critic_brier"), digits=4),
        fraction(metrics.get("constant_brier"), digits=4),
        "steers" if _is_steered(metrics) else "learns",
        count(tokens),
        count(round(tokens / collect_s)) if collect_s else "-",
        duration(metrics.get("wall_s", 0.0)),
    ]


def _is_steered(metrics: Mapping[str, Any]) -> bool:
    version = metrics.get("critic_version")
    return version is not None and not str(version).startswith("constant-")


def critic_note(metrics: Mapping[str, Any]) -> str:
    """How the critic stands after a round's judgement; "" for a round without one.

    >>> critic_note({"critic_brier": 0.18, "constant_brier": 0.25, "critic_gate": True})
    'critic Brier 0.180 against 0.250: steers the next round'
    """
    if "critic_brier" not in metrics:
        return ""
    role = "steers the next round" if metrics.get("critic_gate") else "does not steer yet"
    critic, constant = metrics["critic_brier"], metrics["constant_brier"]
    return f"critic Brier {critic:.3f} against {constant:.3f}: {role}"


def eta_s(wall_s: Sequence[float], *, rounds_left: int) -> float | None:
    """Seconds that the rounds left will take at the pace of the last three; None unknown.

    >>> eta_s([90.0, 10.0, 12.0, 14.0], rounds_left=5)
    60.0
    """
    recent = wall_s[-3:]
    return sum(recent) / len(recent) * rounds_left if recent else None


def rounds_view(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """All rounds as a table that gives way when the terminal is narrow."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in _COLUMNS:
        table.add_column(column.title, justify="right", no_wrap=True)
    for row in rows:
        style = "green" if _is_steered(row) else ""
        table.add_row(*_cells(row), style=style)
    return table


_TRENDS = (
    ("success", "collection_success", 3),
    ("critic Brier", "critic_brier", 4),
    ("root value", "root_value", 3),
)


def trends(rows: Sequence[Mapping[str, Any]], *, glyphs: Glyphs) -> RenderableType:
    """Sparklines of what should move, with first, last and difference."""
    lines = []
    for title, name, digits in _TRENDS:
        values = [row.get(name) for row in rows]
        known = [value for value in values if value is not None]
        if len(known) < 2:
            continue
        first, last = (fraction(value, digits=digits) for value in (known[0], known[-1]))
        lines.append(
            Text.assemble(
                (f"{title:<13}", "bold"),
                (sparkline(values[-60:], bars=glyphs.bars), "cyan"),
                f"  {first} {glyphs.arrow} {last} ({signed(known[-1] - known[0], digits=digits)})",
            )
        )
    return Group(*lines)
