"""S6: what a model writes is parsed and compared, never executed."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from focus.promises.base import Measured, Stand
from focus.promises.loading import PAYLOADS
from focus.rendering.dialects import DIALECTS
from focus.tasks.answers import last_box, tail
from focus.tasks.quality import grading_pairs
from focus.tasks.scoring import ExactScorer, MathScorer, Scorer

__all__ = ("CODE", "Seal", "code_answers", "never_executed")

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REACHING = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.", "pty.", "urllib.")
_HARMLESS = ("os.listdir", "os.scandir")

CODE = (
    "__import__('os').system('touch {marker}')",
    "open('{marker}', 'w')",
    "().__class__.__base__.__subclasses__()",
    "exec(\"open('{marker}', 'w')\")",
    "[x for x in [open('{marker}', 'w')]]",
    "2 if open('{marker}', 'w') else 3",
    "1 + open('{marker}', 'w').fileno()",
    "lambda: open('{marker}', 'w')",
    "canary(2)^{{canary}}",
    "9**9",
)
"""Answers that are Python; `marker` is the file they would make."""


class Seal:
    """Notes what reaches out of the process, or compiles text that stands in an answer."""

    def __init__(self) -> None:
        self.watched = ""
        self.events: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watched:
            return
        if event == "open" and arguments[2] & _WRITING:
            self.events.append(f"open {arguments[0]} for {self.watched}")
        elif event == "compile" and _is_from_answer(arguments):
            self.events.append(f"compile for {self.watched}")
        elif event.startswith(_REACHING) and event not in _HARMLESS:
            self.events.append(f"{event} for {self.watched}")


def _is_from_answer(arguments: tuple[Any, ...]) -> bool:
    """The algebra system compiles code of its own, in which no name of an answer stands."""
    source = arguments[0]
    text = source.decode(errors="replace") if isinstance(source, bytes) else str(source)
    return "canary" in text or "__" in text


def never_executed(stand: Stand) -> Measured:
    """Every scorer and parser on answers that are code, under a hook that hears what it does."""
    marker = stand.folder / "canary"
    texts = list(code_answers(marker))
    seal, tried = Seal(), 0
    for name, scorer, reference in _scorers():
        scorer.score(r"\boxed{2}", reference)
        for text in texts:
            scorer.score(text, reference)  # caches of the algebra system fill now
            seal.watched = f"{name}: {text[:60]}"
            scorer.score(text, reference)
            _parse(text)
            seal.watched = ""
            tried += 1
            stand.progress(tried, 2 * len(texts))
    found = [*seal.events, *(["the marker exists"] if marker.exists() else [])]
    detail = {"answers": len(texts), "dialects": sorted(DIALECTS), "events": found[:20]}
    return Measured(len(found), tried, detail)


def _parse(text: str) -> None:
    """All that reads a reply: the box of its answer, and tool calls in every dialect."""
    last_box(tail(text))
    for dialect in DIALECTS.values():
        dialect.read(text)
        dialect.read(dialect.write("look", {"for": text}))


def code_answers(marker: Path) -> Iterator[str]:
    """Each piece of code in the dressings that extraction removes, and other hostile texts."""
    for code in CODE:
        body = code.format(marker=marker)
        for dress in (r"\boxed{%s}", r"\boxed{\text{%s}}", r"\boxed{$%s$}", "<answer>%s</answer>"):
            yield dress % body
    for payload in PAYLOADS.values():
        yield rf"\boxed{{{payload.decode('latin-1')}}}"
    yield from (pair.text for pair in grading_pairs()[::25])


def _scorers() -> Iterator[tuple[str, Scorer, str]]:
    yield "exact", ExactScorer(), "2"
    if importlib.util.find_spec("math_verify") is not None:
        yield "math", MathScorer(), "2"
