"""Errors end as one line and a code; bugs keep their traceback."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from focus.cli.boundary import INTERRUPTED, GuardedGroup, known_error
from focus.errors import ConfigError, FocusError, RequestError, StoreError


def app_that_raises(error: BaseException) -> typer.Typer:
    app = typer.Typer(cls=GuardedGroup, pretty_exceptions_enable=False)

    @app.callback()
    def main(debug: bool = False) -> None: ...

    @app.command()
    def work() -> None:
        raise error

    return app


def run(error: BaseException, *arguments: str) -> Any:
    return CliRunner().invoke(app_that_raises(error), ["work", *arguments])


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60))
def test_an_error_of_ours_is_one_line_on_stderr(text: str) -> None:
    result = run(ConfigError(text.replace("\n", " ")))
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.split("\n")
    assert lines[0].startswith("error:")
    assert lines[1:] == [""]


def test_a_long_message_is_not_wrapped() -> None:
    assert len(run(ConfigError("long " * 100)).stderr.splitlines()) == 1


def test_markup_in_a_message_is_text() -> None:
    assert "[red]no[/red]" in run(ConfigError("[red]no[/red]")).stderr


@pytest.mark.parametrize("arguments", [["--debug", "work"], ["work", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(arguments: list[str]) -> None:
    error = ConfigError("why")
    assert CliRunner().invoke(app_that_raises(error), arguments).exception is error


def test_a_bug_is_not_dressed_up() -> None:
    error = KeyError("bug")
    assert run(error).exception is error


def test_a_full_disk_is_named_by_its_file() -> None:
    result = run(OSError(28, "No space left on device", "runs/x/metrics.jsonl"))
    assert result.stderr == "error: runs/x/metrics.jsonl: No space left on device\n"


def test_ctrl_c_ends_with_the_code_of_shells() -> None:
    result = run(KeyboardInterrupt())
    assert result.exit_code == INTERRUPTED
    assert "stopped" in result.stderr


def test_concurrent_errors_are_told_once_with_their_number() -> None:
    group = ExceptionGroup(
        "tasks", [StoreError("a"), ExceptionGroup("more", [StoreError("b"), FocusError("c")])]
    )
    assert known_error(group) == "a (and 2 more errors)"


def test_a_bug_among_concurrent_errors_is_a_bug() -> None:
    assert known_error(ExceptionGroup("tasks", [StoreError("a"), ZeroDivisionError()])) is None


def test_the_place_of_a_request_is_part_of_the_line() -> None:
    error = pickle.loads(pickle.dumps(RequestError("refused", request="r/0/1")))  # noqa: S301
    assert known_error(error) == "refused [request=r/0/1]"
