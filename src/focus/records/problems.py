"""Problems out of a user's JSONL file: MATH rows, or rows of prompt and label."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus.errors import ProblemError, SchemaError
from focus.problem import Message, Problem
from focus.records.codec import decode_message
from focus.records.files import read_whole
from focus.records.strict_json import loads

__all__ = ("BadRow", "ProblemFile", "read_problems")

_PROMPT_KEYS = ("problem", "prompt", "question")
_LABEL_KEYS = ("solution", "label", "answer")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is no problem.

    Attributes:
        line: from 1.
        reason: what is wrong with it.
    """

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProblemFile:
    """What a file of problems holds.

    Attributes:
        path: the file.
        problems: good rows, in file order.
        lines: the line of each of them, from 1.
        bad_rows: the others; a caller decides how many it accepts.
    """

    path: Path
    problems: tuple[Problem, ...]
    lines: tuple[int, ...]
    bad_rows: tuple[BadRow, ...]


def read_problems(
    path: str | os.PathLike[str], *, prompt_key: str | None = None, label_key: str | None = None
) -> ProblemFile:
    """Read one problem per line.

    A row's id is its ``id`` field, or else its number among the rows, from 0. Fields
    that are neither id, prompt nor label become metadata.

    Args:
        path: a JSONL file in UTF-8, with or without a byte order mark; blank lines are
            passed over.
        prompt_key: field of the prompt (text, or messages with role and content); by
            default the first of ``problem``, ``prompt``, ``question`` that a row has.
        label_key: field of the reference; by default the first of ``solution``,
            ``label``, ``answer``.

    Raises:
        StoreError: the file is missing or unreadable.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b'{"problem": "2+2?", "solution": "4"}\\n{"problem": "3+3?"}\\n')
    ...     file.flush()
    ...     found = read_problems(file.name)
    >>> found.problems[0].label, found.bad_rows[0].line
    ('4', 2)
    """
    problems: list[Problem] = []
    bad_rows: list[BadRow] = []
    seen: dict[int | str, int] = {}
    for index, (line, data) in enumerate(_rows(Path(path))):
        try:
            row = loads(data, where=f"line {line}")
            problem = _problem(row, index, prompt_key, label_key)
            if problem.id in seen:
                raise ProblemError(f"id {problem.id!r} was used in line {seen[problem.id]}")
        except (ProblemError, SchemaError) as error:
            bad_rows.append(BadRow(line, str(error).removeprefix(f"line {line}: ")))
        else:
            seen[problem.id] = line
            problems.append(problem)
    return ProblemFile(Path(path), tuple(problems), tuple(seen.values()), tuple(bad_rows))


def _rows(path: Path) -> Iterator[tuple[int, bytes]]:
    data = read_whole(path).removeprefix(_BYTE_ORDER_MARK)
    for line, row in enumerate(data.split(b"\n"), start=1):
        if row.strip():
            yield line, row


def _problem(row: Any, index: int, prompt_key: str | None, label_key: str | None) -> Problem:
    if not isinstance(row, dict):
        raise ProblemError(f"a row is an object, this one is a {type(row).__name__}")
    prompt_name = _field(row, _PROMPT_KEYS if prompt_key is None else (prompt_key,), "prompt")
    label_name = _field(row, _LABEL_KEYS if label_key is None else (label_key,), "reference")
    metadata = {
        name: value for name, value in row.items() if name not in ("id", prompt_name, label_name)
    }
    return Problem(
        id=_id(row.get("id", index)),
        prompt=_prompt(row[prompt_name], prompt_name),
        label=row[label_name],
        metadata=metadata,
    )


def _field(row: Mapping[str, Any], names: tuple[str, ...], what: str) -> str:
    """The first of `names` in the row; what stands there must not be empty."""
    name = next((name for name in names if name in row), None)
    if name is None:
        raise ProblemError(f"no {what}: none of the fields {', '.join(names)}")
    value = row[name]
    if value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip()):
        raise ProblemError(f"empty {what} in field {name!r}")
    return name


def _id(value: Any) -> int | str:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ProblemError(f"an id is text or a whole number, not {value!r}")


def _prompt(value: Any, name: str) -> str | tuple[Message, ...]:
    if isinstance(value, list):
        return tuple(decode_message(item, where=f"field {name!r}") for item in value)
    if not isinstance(value, str):
        raise ProblemError(f"field {name!r}: a prompt is text or messages, not {value!r}")
    return value
