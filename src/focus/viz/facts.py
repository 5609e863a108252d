"""Names and values in two columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

__all__ = ("Facts",)


class Facts:
    """One fact a line; long values wrap in a terminal and run on in a file.

    Args:
        rows: name and value of each.
        style: of the values.
    """

    def __init__(self, rows: Iterable[tuple[str, str]], *, style: str = "") -> None:
        self._rows = list(rows)
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.is_terminal:
            yield self._table()
            return
        width = max((len(name) for name, _ in self._rows), default=0)
        for name, value in self._rows:
            yield Text(f"{name:<{width}}  {value}", no_wrap=True, overflow="ignore")

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in self._rows:
            table.add_row(name, Text(value, style=self._style))
        return table
