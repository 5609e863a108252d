"""Where errors end: one red line that names culprit and remedy, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from focus.errors import FocusError

__all__ = ("INTERRUPTED", "GuardedGroup", "complain", "known_error", "say_stopped")

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_DEBUG = "--debug"


class GuardedGroup(TyperGroup):
    """Turns errors that FOCUS raises on purpose into a line and exit code 1.

    Usage errors keep click's exit code 2; anything else is a bug and shows its traceback.
    ``--debug`` may stand anywhere on the line.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if _DEBUG in args:
            args = [_DEBUG, *(argument for argument in args if argument != _DEBUG)]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say_stopped("nothing is left half-written")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            message = known_error(error)
            if message is None or ctx.params.get("debug"):
                raise
            complain(message)
            raise typer.Exit(1) from None


def known_error(error: BaseException) -> str | None:
    """What to tell the user about an error he can do something about; None for a bug.

    Errors that concurrent work raised together are told as the first of them.

    >>> known_error(ExceptionGroup("both", [FocusError("no disk"), FocusError("no disk")]))
    'no disk (and 1 more error)'
    >>> known_error(KeyError("x")) is None
    True
    """
    leaves = list(_leaves(error))
    messages = [_message(leaf) for leaf in leaves]
    if not messages or messages[0] is None or None in messages:
        return None
    others = len(messages) - 1
    return messages[0] + (f" (and {others} more error{'s' * (others > 1)})" if others else "")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _message(error: BaseException) -> str | None:
    if isinstance(error, FocusError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}"
    return None


def complain(message: str) -> None:
    """Print an error to stderr: red where that is a terminal, never wrapped or interpreted."""
    _print_to_stderr(f"error: {message}", style="bold red")


def say_stopped(message: str) -> None:
    """Print that Ctrl-C took effect, and what the user can do next."""
    _print_to_stderr(f"stopped: {message}", style="bold yellow")


def _print_to_stderr(message: str, *, style: str) -> None:
    from rich.console import Console
    from rich.text import Text

    from focus.viz.text import visible

    lines = "\n".join(visible(line) for line in message.strip("\n").split("\n"))
    Console(file=sys.stderr).print(Text(lines, style=style), soft_wrap=True)
