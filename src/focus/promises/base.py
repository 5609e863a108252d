"""A promise, the stand it is measured on, and the row that comes out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from focus.errors import ConfigError

__all__ = ("Better", "Limits", "Measured", "Promise", "Row", "Size", "Stand")

T = TypeVar("T")

Better = Literal["lower", "higher"]

_ID = re.compile(r"[A-Z]\d")


class Size(StrEnum):
    """How much is tried: seconds per row, or what a release publishes."""

    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, kw_only=True)
class Stand:
    """Where one row is measured: a process and a folder of its own.

    Attributes:
        size: quick or full.
        folder: empty; removed afterwards.
        progress: told how many of how many trials are done.
    """

    size: Size
    folder: Path
    progress: Callable[[int, int], None] = lambda done, of: None

    def pick(self, *, quick: T, full: T) -> T:
        """The setting for this size."""
        return quick if self.size is Size.QUICK else full


@dataclass(frozen=True)
class Measured:
    """What a row found.

    Attributes:
        figure: in the promise's unit; for a promise of zero, how often it was broken.
        trials: how many times it could have been broken.
        detail: figures behind the figure, as plain JSON.
    """

    figure: float
    trials: int
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not math.isfinite(self.figure):
            raise ConfigError(f"a figure is a finite number, got {self.figure}")
        if self.trials < 1:
            raise ConfigError(f"nothing was tried: {self.trials} trials are no measurement")


@dataclass(frozen=True)
class Limits:
    """Seconds after which a row that still measures is killed and counts as broken."""

    quick_s: float = 180.0
    full_s: float = 3_600.0

    def of(self, size: Size) -> float:
        return self.quick_s if size is Size.QUICK else self.full_s


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One row of the promise table.

    Attributes:
        id: letter of the family and number.
        promise: what is promised, in one sentence.
        target: what the figure must reach.
        better: the side of the target on which the promise is kept; the target itself keeps it.
        unit: of the figure.
        measure: a function of a module, which finds the figure; None while there is none, and
            then nothing is promised.
        in_quick: False shows the stored full figure in a quick report.
        limits: how long measuring may take.

    >>> row = Promise(id="F9", promise="no record is lost", target=0, unit="records")
    >>> row.kept(0), row.kept(1)
    (True, False)
    """

    id: str
    promise: str
    target: float
    unit: str
    better: Better = "lower"
    measure: Callable[[Stand], Measured] | None = None
    in_quick: bool = True
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ConfigError(f"the id of a promise is a letter and a digit, got {self.id!r}")

    def kept(self, figure: float) -> bool:
        """Whether a figure reaches the target."""
        return figure <= self.target if self.better == "lower" else figure >= self.target

    def bound(self, figure: float, trials: int) -> float | None:
        """95 % upper bound of the rate behind "0 of N": 3/N; None for any other figure.

        >>> row = Promise(id="F9", promise="no record is lost", target=0, unit="records")
        >>> row.bound(0, 10_000)
        0.0003
        """
        is_zero_of_n = self.target == 0 and self.better == "lower" and figure == 0
        return 3 / trials if is_zero_of_n else None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A promise and what is known of it.

    Attributes:
        promise: the promise.
        measured: figure and trials; None where there is no figure.
        measured_on: date, size and machine.
        error: why there is no figure although it was tried; the promise counts as broken.
    """

    promise: Promise
    measured: Measured | None = None
    measured_on: str = ""
    error: str = ""

    @property
    def met(self) -> bool | None:
        """None: not promised, because nothing was measured."""
        if self.error:
            return False
        return None if self.measured is None else self.promise.kept(self.measured.figure)

    @property
    def bound(self) -> float | None:
        found = self.measured
        return None if found is None else self.promise.bound(found.figure, found.trials)

    @property
    def text(self) -> str:
        """The promise; says so where it is none."""
        if self.met is None:
            return f"{self.promise.promise} (not promised: not measured yet)"
        return self.promise.promise

    def to_dict(self) -> dict[str, Any]:
        """The row as `focus promises --json` writes it."""
        found = self.measured
        return {
            "id": self.promise.id,
            "promise": self.text,
            "figure": None if found is None else found.figure,
            "target": self.promise.target,
            "better": self.promise.better,
            "trials": 0 if found is None else found.trials,
            "bound": self.bound,
            "met": self.met,
            "measured_on": self.measured_on,
        }
