"""Help teaches, and costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import Invoke

COMMANDS = (
    ("train",),
    ("eval",),
    ("collect",),
    ("show",),
    ("doctor",),
    ("promises",),
    ("check", "env"),
    ("models",),
    ("models", "add"),
    ("models", "path"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example_that_names_the_command(
    command: tuple[str, ...], invoke: Invoke
) -> None:
    page = invoke(*command, "--help").stdout
    assert "Example" in page
    assert f"focus {' '.join(command)}" in page.split("Example", 1)[1]


def test_exit_codes_of_collect_are_documented(invoke: Invoke) -> None:
    page = " ".join(invoke("collect", "--help").stdout.split())
    assert "0 every row has its tree" in page
    assert "3 trees were written, and some rows are bad or failed" in page


def test_the_command_line_imports_nothing_heavy() -> None:
    heavy = "torch transformers numpy httpx anyio asyncio rich focus.collect focus.training"
    code = (
        "import sys; import focus.cli.main; "
        f"print(*[name for name in {heavy.split()!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_version_is_printed(invoke: Invoke) -> None:
    from focus import __version__

    assert invoke("--version").stdout == f"focus {__version__}\n"


def test_the_package_is_the_command_too() -> None:
    from focus import __version__

    done = subprocess.run(
        [sys.executable, "-m", "focus", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"focus {__version__}\n"


def test_no_command_shows_the_help(invoke: Invoke) -> None:
    assert "Commands:" in invoke(code=2).output
