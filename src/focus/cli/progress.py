"""Progress of long work: one live line in a terminal, sparse plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from focus.viz.numbers import duration

__all__ = ("LineProgress", "LiveProgress", "WorkProgress", "progress_on")

_EVERY_S = 15.0


class WorkProgress(Protocol):
    """Shows how far a piece of work is."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        """The current piece of work; a new name begins a new piece."""
        ...

    def say(self, text: str, *, style: str = "") -> None:
        """A line that stays."""
        ...

    def status(self, below: RenderableType) -> None:
        """What a live display keeps showing below the bar."""
        ...


def progress_on(console: Console) -> WorkProgress:
    """Live where `console` is a terminal that can move its cursor, lines where it is not."""
    is_live = console.is_terminal and not console.is_dumb_terminal
    return LiveProgress(console) if is_live else LineProgress(console)


class LineProgress:
    """A line for every 15 s of work; no control codes.

    Args:
        console: where lines go.
        clock: seconds, monotonic.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._name = ""
        self._began = 0.0
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        now = self._clock()
        if name != self._name:
            self._name, self._began, self._last = name, now, now
        if now - self._last < _EVERY_S:
            return
        self._last = now
        rest = f", {note}" if note else ""
        self.say(f"{name}: {done}/{total}{rest}, {duration(now - self._began)}")

    def say(self, text: str, *, style: str = "") -> None:
        self._console.print(Text(text), soft_wrap=True)

    def status(self, below: RenderableType) -> None:
        return None


class _Rate(ProgressColumn):
    """Items a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s", style="dim")


class _Bars(Progress):
    """Bars with more below them."""

    below: RenderableType = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.below:
            yield self.below


class LiveProgress:
    """A bar with rate, elapsed and remaining time, and a status below it.

    Args:
        console: a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = _Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
            refresh_per_second=6,
        )
        self._task: TaskID | None = None
        self._name = ""

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        if name != self._name and self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
        self._name = name
        if self._task is None:
            self._task = self._bars.add_task(name, total=total, completed=done, note=note)
        self._bars.update(self._task, completed=done, total=total, note=note)

    def say(self, text: str, *, style: str = "") -> None:
        self._bars.console.print(Text(text, style=style), soft_wrap=True)

    def status(self, below: RenderableType) -> None:
        if isinstance(below, str):
            below = Text(below, style="dim", no_wrap=True, overflow="ellipsis")
        self._bars.below = below
