"""Draw a renderable with ASCII guides, whatever the terminal could show."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

__all__ = ("AsciiGuides",)


class AsciiGuides:
    """Makes tables and trees inside it draw their lines in ASCII."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = options.copy()
        plain.encoding = "ascii"
        yield from console.render(self._inner, plain)
