"""Which request meets which fault."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from focus.errors import ConfigError
from focus.testing.chaos.catalogue import FAULTS
from focus.testing.chaos.faults import Fault, Kind

__all__ = ("Alone", "Clean", "Mix", "Pairs", "Plan", "survivable")


class Plan(Protocol):
    """Chooses a fault for each request."""

    def fault(self, name: str, number: int) -> Fault | None:
        """The fault of the request `name`, the `number`-th to arrive; None: answer honestly."""
        ...


@dataclass(frozen=True)
class Clean:
    """No faults."""

    def fault(self, name: str, number: int) -> Fault | None:
        return None


@dataclass(frozen=True)
class Alone:
    """One fault, each time."""

    only: Fault

    def fault(self, name: str, number: int) -> Fault | None:
        return self.only


def _mixed() -> Mapping[str, tuple[Fault, ...]]:
    def of(*kinds: Kind) -> tuple[Fault, ...]:
        return tuple(fault for fault in FAULTS if fault.is_detectable and fault.kind in kinds)

    return {
        "transient": of(Kind.TRANSIENT),
        "content": of(Kind.CORRUPT, Kind.ABORT),
        "fatal": of(Kind.DATA, Kind.FATAL),
        "odd": of(Kind.HARMLESS),
    }


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Independent faults in given shares; by default 25 % transient, 10 % content, 5 % fatal.

    Of what is left, `odd` are replies that are true and look strange. Undetectable faults
    are in no mix.

    Attributes:
        seed: with the request's name it decides, whenever the request arrives.
        transient, content, fatal, odd: shares of all requests.
        pools: faults that each share draws from.

    Raises:
        ConfigError: shares below 0 or above 1 in sum.
    """

    seed: int = 0
    transient: float = 0.25
    content: float = 0.10
    fatal: float = 0.05
    odd: float = 0.10
    pools: Mapping[str, Sequence[Fault]] = field(default_factory=_mixed)

    def __post_init__(self) -> None:
        shares = self._shares()
        if min(shares.values()) < 0 or sum(shares.values()) > 1:
            raise ConfigError(f"shares of faults must be >= 0 and at most 1 in sum, got {shares}")

    def _shares(self) -> dict[str, float]:
        return {
            "transient": self.transient,
            "content": self.content,
            "fatal": self.fatal,
            "odd": self.odd,
        }

    def fault(self, name: str, number: int) -> Fault | None:
        rng = random.Random(f"{self.seed}/{name}/fault")
        left = rng.random()
        for pool, share in self._shares().items():
            left -= share
            if left < 0:
                return rng.choice(self.pools[pool])
        return None


def survivable(seed: int, *, share: float = 0.3, odd: float = 0.05) -> Mix:
    """Faults that pass by themselves: resets, cuts, 5xx, 429, delays.

    None waits for the client's deadline, and none strikes more than its own request, so that
    `share` is the share of tries that fail.
    """
    pools = _mixed()
    loud = tuple(fault for fault in pools["transient"] if fault.strikes_once)
    return Mix(
        seed=seed,
        transient=share,
        content=0.0,
        fatal=0.0,
        odd=odd,
        pools={**pools, "transient": loud},
    )


class Pairs:
    """Every ordered pair of faults on consecutive requests, over and over.

    A walk of len(faults)² requests in which each fault follows each other one once.

    >>> from focus.testing.chaos.catalogue import FAULTS
    >>> plan = Pairs(FAULTS[:3])
    >>> plan.period, len({(plan.fault("", n), plan.fault("", n + 1)) for n in range(9)})
    (9, 9)
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        if not faults:
            raise ConfigError("pairs of no faults")
        self._order = [faults[index] for index in _each_pair_once(len(faults))]

    @property
    def period(self) -> int:
        """Requests until every pair has been met."""
        return len(self._order)

    def fault(self, name: str, number: int) -> Fault | None:
        return self._order[number % len(self._order)]


def _each_pair_once(count: int) -> Iterator[int]:
    """A closed walk over 0…count−1 that takes each ordered pair once: a, a, b, a, c, …"""
    for first in range(count):
        yield first
        for second in range(first + 1, count):
            yield first
            yield second
