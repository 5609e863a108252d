"""`focus check`: does a part of your own keep what FOCUS relies on?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from focus.cli.progress import WorkProgress
    from focus.testing.env_check import EnvCase, EnvReport

__all__ = ("check_app", "check_environment", "load_name")

check_app: typer.Typer = typer.Typer(name="check", no_args_is_help=True, rich_markup_mode=None)


@check_app.callback()
def about() -> None:
    """Check parts of your own against what FOCUS relies on."""


def check_environment(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME", help="What makes the environment, or an EnvCase; importable."
        ),
    ],
    action: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A reply as a policy writes it; repeat for more."),
    ] = None,
    problem: Annotated[str, typer.Option(metavar="TEXT", help="Prompt to reset with.")] = "Begin.",
    label: Annotated[str, typer.Option(metavar="TEXT", help="Label of that problem.")] = "",
    turns: Annotated[
        Literal["hermes", "qwen_xml"] | None,
        typer.Option(help="Replies are messages with tool calls in this dialect."),
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, help="Random sequences to try.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the sequences.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Try an environment: forks equal, branches apart, nothing leaked.

    An environment that is branched must answer a fork as it would have answered the
    original, must keep branches apart, must give back all it took, and may bring states
    back after a crash. Each law is tried on random sequences of forks, steps, releases and
    restores; a broken law is shown with the shortest sequence of calls that breaks it.

    MODULE:NAME is imported with this folder on the path. It is called without arguments
    and returns an environment, several times; then --action says what to do with it. Or it
    is, or returns, a focus.testing.EnvCase, which says all of that itself.

    Without --turns replies are chunks of one solution (Segments).

    Exit code 0 when every law held, 1 when one was broken.

    \b
    Examples:
      focus check env my_env:make --problem "2+2?" --action "4" --action "5"
      focus check env my_env:case --sequences 1000
      focus check env my_tools:make --turns hermes --action \\
        '<tool_call>{"name": "look", "arguments": {"key": "a"}}</tool_call>'
    """
    from focus.cli.interrupt import run_until_interrupted
    from focus.cli.terminal import progress_console, result_console

    case = _case(name, action or [], problem=(problem, label), turns=turns)
    report = run_until_interrupted(
        lambda progress: _checked(case, sequences, seed, progress),
        console=progress_console(),
        last_words="the check was not finished",
    )
    if as_json:
        _print_json(report)
    else:
        _show(result_console(), report)
    if not report.ok:
        raise typer.Exit(1)


check_app.command(name="env", short_help="Does an environment fork as trees need it?")(
    check_environment
)


async def _checked(case: EnvCase, sequences: int, seed: int, progress: WorkProgress) -> EnvReport:
    from focus.testing.env_check import check_case

    return await check_case(case, sequences=sequences, seed=seed, progress=progress.stage)


def _case(name: str, actions: list[str], *, problem: tuple[str, str], turns: str | None) -> EnvCase:
    from focus.agent import Segments, Turns
    from focus.errors import ConfigError
    from focus.problem import Problem
    from focus.testing.env_check import EnvCase

    found = load_name(name)
    made = found if isinstance(found, EnvCase) else _made(found, name)
    if isinstance(made, EnvCase):
        return made
    if not actions:
        raise ConfigError(
            f"{name} makes an environment, but nothing to do in it is known: give --action, once "
            "for each reply to try, or let it return a focus.testing.EnvCase"
        )
    prompt, label = problem
    return EnvCase(
        env=found,
        problem=Problem(id="check", prompt=prompt, label=label or None),
        actions=actions,
        parser=Segments(256) if turns is None else Turns(turns),
    )


def _made(found: Any, name: str) -> Any:
    from focus.errors import ConfigError

    if not callable(found):
        raise ConfigError(f"{name} is {found!r}: neither an EnvCase nor what makes an environment")
    try:
        return found()
    except TypeError as error:
        raise ConfigError(f"{name} cannot be called without arguments: {error}") from error


def load_name(name: str) -> Any:
    """What ``module:name`` stands for, the working folder being on the path.

    Raises:
        ConfigError: not of that form, no such module, or no such name in it.
    """
    import importlib
    import sys

    from focus.errors import ConfigError

    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ConfigError(f"{name!r} is not of the form module:name, e.g. my_env:make")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{name}: {error}; run this where the module lies, or install its package"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{name}: module {module} has no {attribute!r}")
        found = getattr(found, part)
    return found


def _print_json(report: EnvReport) -> None:
    import json

    typer.echo(json.dumps({"ok": report.ok, "findings": report.to_plain()}, indent=2))


def _show(console: Console, report: EnvReport) -> None:
    styles = {"ok": "", "broken": "bold red", "absent": "dim", "skipped": "yellow"}
    for finding in report.findings:
        style = styles[finding.state]
        console.print(str(finding), style=style, markup=False, soft_wrap=True)
    broken = report.broken
    last = f"broken: {', '.join(broken)}" if broken else "every law held"
    console.print(last, style="bold red" if broken else "bold green", markup=False)
