"""Planted faults: read from mutants.toml, applied to a copy of the source."""

from __future__ import annotations

import ast
import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ("CATALOGUE", "Mutant", "load_mutants")

CATALOGUE = Path(__file__).with_name("mutants.toml")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault as a change of code.

    Attributes:
        id: M01, M02, …
        case: the open case that it is taken from.
        area: the part of FOCUS that it sits in.
        fault: what would go wrong, in one sentence.
        file: path from the root of the checkout.
        before, after: the exact text, and what it becomes.
        tests: the part of the suite that must find it.
    """

    id: str
    case: str
    area: str
    fault: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Names the change and the tests: another one is another mutant."""
        text = "\x00".join((self.file, self.before, self.after, *self.tests))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def applied(self, source: str) -> str:
        """The source with the fault.

        Raises:
            ValueError: the text to change does not occur exactly once, or the result is no
                other valid Python.
        """
        found = source.count(self.before)
        if found != 1:
            raise ValueError(f"{self.id}: {self.file} holds its text {found} times, not once")
        changed = source.replace(self.before, self.after)
        if ast.dump(_parsed(changed, self)) == ast.dump(_parsed(source, self)):
            raise ValueError(f"{self.id}: the change means nothing")
        return changed


def load_mutants(catalogue: Path = CATALOGUE) -> tuple[Mutant, ...]:
    """All planted faults, in order."""
    entries = tomllib.loads(catalogue.read_text("utf-8"))["mutant"]
    return tuple(Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries)


def _parsed(source: str, mutant: Mutant) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"{mutant.id}: {mutant.file} is no valid Python: {error}") from error
