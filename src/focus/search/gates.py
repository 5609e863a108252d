"""How many purchases one checkpoint may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from focus.errors import ConfigError

__all__ = ("Concurrency", "Gate", "Width")


@runtime_checkable
class Gate(Protocol):
    """Says whether a checkpoint may be bought once more, from its own counts alone."""

    def admits(self, *, children: int, pending: int) -> bool:
        """True while one more purchase is allowed.

        Args:
            children: branches attached below the checkpoint, in any phase.
            pending: purchases of it that have not settled.
        """
        ...


@dataclass(frozen=True)
class Width:
    """At most `limit` branches below a checkpoint, those still growing included.

    >>> Width(2).admits(children=1, pending=0), Width(2).admits(children=1, pending=1)
    (True, False)
    """

    limit: int

    def __post_init__(self) -> None:
        _check_positive("Width", self.limit)

    def admits(self, *, children: int, pending: int) -> bool:
        return children + pending < self.limit


@dataclass(frozen=True)
class Concurrency:
    """At most `limit` purchases of a checkpoint at once; any number over time.

    >>> Concurrency(2).admits(children=9, pending=1), Concurrency(2).admits(children=0, pending=2)
    (True, False)
    """

    limit: int

    def __post_init__(self) -> None:
        _check_positive("Concurrency", self.limit)

    def admits(self, *, children: int, pending: int) -> bool:
        return pending < self.limit


def _check_positive(name: str, limit: int) -> None:
    if limit < 1:
        raise ConfigError(f"{name} must be >= 1, got {limit}: no checkpoint could be bought")
