"""Words of a shell script, read and never run.

Enough of bash for launch scripts: quotes, comments, continued lines, here-documents, plain
and array assignments, and their use. What only a running shell knows keeps its ``$``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ("commands",)

_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?^\s*\2$", re.DOTALL | re.MULTILINE)
_ASSIGNMENT = re.compile(r"(\w+)(\+?)=(.*)", re.DOTALL)
_ARRAY_USE = re.compile(r"\$\{(\w+)\[[@*]\]\}")
_USE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_CLOSING = {"{": "}", "(": ")"}
_ENDS_COMMAND = frozenset("\n;&|")


def commands(script: str) -> Iterator[list[str]]:
    """Every simple command, its assigned variables put in where they are literal.

    >>> list(commands('N=4; A=(--seed 7)\\nrun --size "$N" "${A[@]}" --out $DIR # done'))
    [['run', '--size', '4', '--seed', '7', '--out', '$DIR']]
    """
    scalars: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    for command in _Lexer(_HERE_DOCUMENT.sub(r"\3\n", script)).commands():
        words = [word for part in command for word in _expanded(part, scalars, arrays)]
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            _assign(match, words, scalars, arrays)
        if words:
            yield words


def _assign(
    match: re.Match[str], words: list[str], scalars: dict[str, str], arrays: dict[str, list[str]]
) -> None:
    """Take one assignment off the front of a command."""
    name, adds, value = match.groups()
    del words[0]
    if value != _Lexer.ARRAY:
        scalars[name] = value
        return
    end = words.index(_Lexer.END)
    arrays[name] = [*(arrays.get(name, []) if adds else []), *words[:end]]
    del words[: end + 1]


def _expanded(word: str, scalars: dict[str, str], arrays: dict[str, list[str]]) -> Iterator[str]:
    whole = _ARRAY_USE.fullmatch(word)
    if whole and whole[1] in arrays:
        yield from arrays[whole[1]]
        return
    value = _USE.sub(lambda use: scalars.get(use[1] or use[2], use[0]), word)
    # Several flags kept in one variable are used without quotes, and split.
    yield from value.split() if _USE.fullmatch(word) and value.startswith("--") else [value]


class _Lexer:
    """Splits a script into commands of words; quotes are gone, ``$`` is kept."""

    ARRAY, END = "\0(", "\0)"

    def __init__(self, text: str) -> None:
        self._text = text.replace("\\\r\n", "").replace("\\\n", "")
        self._at = 0
        self._word: str | None = None
        self._words: list[str] = []
        self._depth = 0

    def commands(self) -> Iterator[list[str]]:
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == "\n" and self._depth:
                self._end_word()
            elif character in _ENDS_COMMAND:
                self._end_word()
                yield self._taken()
            else:
                self._take(character)
        self._end_word()
        yield self._taken()

    def _take(self, character: str) -> None:
        if character.isspace():
            self._end_word()
        elif character == "#" and self._word is None:
            self._at = _or_end(self._text.find("\n", self._at), self._text)
        elif character == "'":
            self._append(self._until("'"))
        elif character == '"':
            self._append(self._double_quoted())
        elif character == "\\":
            self._append(self._text[self._at : self._at + 1])
            self._at += 1
        elif character == "$" and self._text[self._at : self._at + 1] in _CLOSING:
            self._append("$" + self._nested())
        elif character == "(" and self._word is not None and self._word.endswith("="):
            self._append(self.ARRAY)
            self._end_word()
            self._depth += 1
        elif character == ")" and self._depth:
            self._end_word()
            self._words.append(self.END)
            self._depth -= 1
        elif character in "()<>":
            self._end_word()
        else:
            self._append(character)

    def _append(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
        self._word = None

    def _taken(self) -> list[str]:
        words, self._words = self._words, []
        return words

    def _until(self, end: str) -> str:
        start, stop = self._at, _or_end(self._text.find(end, self._at), self._text)
        self._at = stop + 1
        return self._text[start:stop]

    def _double_quoted(self) -> str:
        made = ""
        while self._at < len(self._text) and self._text[self._at] != '"':
            character = self._text[self._at]
            self._at += 1
            if character == "\\":
                character = self._text[self._at : self._at + 1]
                self._at += 1
            elif character == "$" and self._text[self._at : self._at + 1] in _CLOSING:
                character += self._nested()
            made += character
        self._at += 1
        return made

    def _nested(self) -> str:
        """``{…}`` or ``(…)`` as it stands, to its own end."""
        opening = self._text[self._at]
        closing, depth, start = _CLOSING[opening], 0, self._at
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            depth += (character == opening) - (character == closing)
            if depth == 0:
                break
        return self._text[start : self._at]


def _or_end(position: int, text: str) -> int:
    return len(text) if position < 0 else position
