"""The few signs that views use, in Unicode and in ASCII."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ("ASCII", "UNICODE", "Glyphs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """Signs of one alphabet.

    Attributes:
        right, wrong, open: outcome above zero, outcome zero, not finished.
        arrow: from one figure to another.
        bars: rising heights of a sparkline.
        refined, target: names of V̂ and Ḡ.
        ascii_only: data is escaped to ASCII too.
    """

    right: str
    wrong: str
    open: str
    arrow: str
    bars: str
    refined: str
    target: str
    ascii_only: bool

    @property
    def overflow(self) -> Literal["ellipsis", "crop"]:
        """What happens to the end of a line that is too long."""
        return "crop" if self.ascii_only else "ellipsis"


UNICODE = Glyphs(
    right="✓",
    wrong="✗",
    open="…",
    arrow="→",
    bars="▁▂▃▄▅▆▇█",
    refined="V̂",
    target="Ḡ",
    ascii_only=False,
)
ASCII = Glyphs(
    right="ok",
    wrong="no",
    open="...",
    arrow="->",
    bars="_.-=^",
    refined="V^",
    target="G",
    ascii_only=True,
)
