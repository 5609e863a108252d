"""One line of the table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ("Figure",)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured number with its goal.

    Attributes:
        id: P3 to P10.
        what: what was measured, against what.
        value, unit: the number.
        goal: where it should be.
        floor: what no implementation can pass; None where nothing bounds it.
        better: ``"lower"`` or ``"higher"``.
    """

    id: str
    what: str
    value: float
    unit: str
    goal: float
    floor: float | None
    better: str = "lower"

    @classmethod
    def ratio(cls, id: str, what: str, ours: float, floor: float, *, goal: float) -> Figure:
        """Our seconds over the floor's."""
        return cls(id=id, what=what, value=ours / floor, unit="ratio", goal=goal, floor=1.0)

    @property
    def met(self) -> bool:
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}
