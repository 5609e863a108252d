"""Every page: its Python runs, its commands exist, the names and files it mentions are there."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main

from focus.cli.main import app
from focus.cli.settings import overrides
from focus.training.settings import settings_from

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELLS = ("bash", "console", "sh")


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its text, and the line its text starts on."""

    info: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield Block(match[1].strip(), match[2], text.count("\n", 0, match.start(2)) + 1)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples write where the reader stands."""
    monkeypatch.chdir(tmp_path)


each_page = pytest.mark.parametrize("page", PAGES, ids=named)


@each_page
def test_examples_print_what_they_say(page: Path) -> None:
    outcome = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert outcome.failed == 0


@each_page
def test_python_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    """As one program per page. ```python alone runs; with more after it, it is compiled only."""
    program: list[str] = []
    for block in blocks(page):
        if block.info.split(" ")[0] != "python" or ">>>" in block.text:
            continue
        if block.info == "python":
            program += [""] * (block.line - 1 - len(program)) + block.text.splitlines()
        else:
            compile(block.text, f"{named(page)}, line {block.line}", "exec")
    script = tmp_path / f"{page.stem}.py"
    script.write_text("\n".join(program), encoding="utf-8")
    runpy.run_path(str(script), run_name="page")


@each_page
def test_commands_exist(page: Path) -> None:
    for block in blocks(page):
        if block.info.split(" ")[0] in SHELLS:
            for command in commands(block):
                check_command(command)


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block: after a prompt in a console, else every line."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.info.startswith("console") and not line.startswith("$ "):
            continue
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words:
            yield words


def check_command(words: Sequence[str]) -> None:
    program, *rest = words
    if program == "focus":
        check_focus(rest)
    elif program in ("bash", "python") and rest and not rest[0].startswith("-"):
        assert (ROOT / rest[0]).is_file(), f"no such file: {rest[0]}"
    elif program.startswith("scripts/"):
        assert (ROOT / program).is_file(), f"no such file: {program}"
    elif program == "pip":
        check_extras(" ".join(rest))


def check_focus(arguments: Sequence[str]) -> None:
    """Sub-commands, options and settings are the ones that the command line knows."""
    settings = [value for word, value in pairwise(arguments) if word == "--set"]
    settings_from(overrides(settings))

    command: Any = typer.main.get_command(app)
    for word in arguments:
        inner = getattr(command, "commands", {})
        if word.startswith("--"):
            known = {name for param in command.params for name in param.opts + param.secondary_opts}
            assert word.split("=")[0] in {*known, "--help"}, f"{command.name} has no {word}"
        elif inner:
            assert word in inner, f"focus has no command {word!r}"
            command = inner[word]


def check_extras(arguments: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for listed in re.findall(r"\[([a-z,]+)\]", arguments):
        assert set(listed.split(",")) <= project["project"]["optional-dependencies"].keys()


@each_page
def test_settings_files_are_valid(page: Path) -> None:
    for block in blocks(page):
        if block.info == "toml":
            settings_from(tomllib.loads(block.text))


@each_page
def test_sessions_show_what_the_commands_print(page: Path, tmp_path: Path) -> None:
    """```console run: the commands are run one after another; ... stands for any text."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for block in blocks(page):
        if block.info == "console run":
            for command, expected in session(block.text):
                printed = run(command)
                assert doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS), (
                    f"{named(page)}: $ {command}\n{printed}"
                )


def session(text: str) -> Iterator[tuple[str, str]]:
    """Commands with what should follow each."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def run(command: str) -> str:
    """Output of a command of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}
    done = subprocess.run(
        shlex.split(command), env=environment, capture_output=True, encoding="utf-8", check=True
    )
    return done.stdout


@each_page
def test_dotted_names_and_files_are_real(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for name in set(re.findall(r"`(focus(?:\.\w+)+)", text)):
        resolve(name)
    for path in set(re.findall(r"`((?:docs|examples|scripts|src|tests)/[\w./-]*\w)`", text)):
        assert (ROOT / path).exists(), f"no such file: {path}"


def resolve(name: str) -> Any:
    """The object of a dotted name; raises when it does not exist."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"no such module: {name}")
