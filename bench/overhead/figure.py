"""One line of the table."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

__all__ = ("Figure", "write_figures")


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
    def ratio(cls, id: str, what: str, value: float, *, goal: float) -> Figure:
        """Our time over the floor's."""
        return cls(id=id, what=what, value=value, unit="ratio", goal=goal, floor=1.0)

    @property
    def met(self) -> bool:
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def write_figures(path: Path, figures: Sequence[Figure], *, what: str, command: str) -> None:
    """The figures as JSON, with what was run, when and where, for whoever reads them later."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    told = {
        "what": what,
        "date": date.today().isoformat(),
        "machine": f"{machine}, Python {platform.python_version()}",
        "command": command,
        "figures": [figure.to_dict() for figure in figures],
    }
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
