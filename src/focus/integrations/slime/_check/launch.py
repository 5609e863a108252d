"""The launch line of a script: which flags it gives to Slime, with which values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from focus.integrations.slime._check.shell import commands

__all__ = ("Given", "Launch", "launches")

_PROGRAM = re.compile(r"(?:^|/)(train|train_async)\.py$")
_ELSEWHERE = re.compile(r"\$\{(\w+)\[[@*]\]\}|\$(\w+_ARGS)|\$\{(\w+_ARGS)\}")


@dataclass(frozen=True, slots=True)
class Given:
    """One flag as it stands on the line, and the words after it."""

    flag: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One call of Slime.

    Attributes:
        program: ``train.py`` or ``train_async.py``.
        flags: in order; a flag given twice stands twice.
        stray: words before the first flag.
        elsewhere: arrays, and variables named …_ARGS, that come from another file.
    """

    program: str
    flags: tuple[Given, ...]
    stray: tuple[str, ...]
    elsewhere: tuple[str, ...]


def launches(script: str) -> Iterator[Launch]:
    """Every launch of Slime in a script, or the one that a bare line is.

    >>> [launch] = launches("ray job submit -- python train.py --seed 7 --bf16")
    >>> launch.flags
    (Given(flag='--seed', values=('7',)), Given(flag='--bf16', values=()))
    """
    for words in commands(script):
        places = [i for i, word in enumerate(words) if _PROGRAM.search(word)]
        if places:
            yield _launch(words[places[-1]], words[places[-1] + 1 :])


def _launch(program: str, words: list[str]) -> Launch:
    flags: list[tuple[str, list[str]]] = []
    stray: list[str] = []
    elsewhere: list[str] = []
    for word in words:
        if array := _ELSEWHERE.fullmatch(word):
            elsewhere.append(array[1] or array[2] or array[3])
        elif word.startswith("--"):
            flag, equals, value = word.partition("=")
            flags.append((flag, [value] if equals else []))
        elif flags:
            flags[-1][1].append(word)
        else:
            stray.append(word)
    return Launch(
        program=program.rpartition("/")[2],
        flags=tuple(Given(flag, tuple(values)) for flag, values in flags),
        stray=tuple(stray),
        elsewhere=tuple(elsewhere),
    )
