"""Figures as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ("count", "duration", "fraction", "interval", "signed", "size", "sparkline")


def count(number: int) -> str:
    """A whole number in at most five characters from a thousand on.

    >>> count(999), count(14_210), count(1_260_000), count(3_100_000_000)
    ('999', '14.2k', '1.26M', '3.1B')
    """
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * limit:
            return f"{number / limit:.3g}{unit}"
    return str(number)


def duration(seconds: float) -> str:
    """Elapsed or remaining time, two units at most.

    >>> duration(0.42), duration(12.3), duration(75), duration(7_260), duration(200_000)
    ('0.4 s', '12 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size_s, unit, below_s, below in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size_s:
            rest = whole % size_s // below_s
            return f"{whole // size_s} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def fraction(value: float | None, *, digits: int = 3) -> str:
    """A value of about unit size; a dash when there is none.

    >>> fraction(0.5), fraction(None)
    ('0.500', '-')
    """
    return "-" if value is None else f"{value:.{digits}f}"


def signed(value: float | None, *, digits: int = 3) -> str:
    """A difference with its sign; a dash when there is none.

    >>> signed(0.125), signed(-0.0001), signed(None)
    ('+0.125', '+0.000', '-')
    """
    if value is None:
        return "-"
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def interval(ends: Sequence[float]) -> str:
    """A confidence interval.

    >>> interval((0.419, 0.5174))
    '[0.419, 0.517]'
    """
    low, high = ends
    return f"[{low:.3f}, {high:.3f}]"


def size(byte_count: int) -> str:
    """Bytes on a disk.

    >>> size(3_587_320), size(512)
    ('3.6 MB', '512 B')
    """
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if byte_count >= limit:
            return f"{byte_count / limit:.1f} {unit}"
    return f"{byte_count} B"


def sparkline(values: Sequence[float | None], *, bars: str) -> str:
    """One bar per value, scaled to the values' own range; a space for a missing one.

    >>> sparkline([0.0, None, 0.5, 1.0], bars="_-^")
    '_ -^'
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    low, span = min(known), max(known) - min(known)

    def bar(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return " "
        place = (value - low) / span if span else 0.5
        return bars[min(len(bars) - 1, int(place * len(bars)))]

    return "".join(map(bar, values))
