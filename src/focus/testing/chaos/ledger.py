"""What the chaos server did: one entry per request that reached it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus.testing.chaos.engine import Sample
from focus.testing.chaos.faults import Fault

__all__ = ("ChaosLedger", "Entry")


@dataclass(kw_only=True)
class Entry:
    """One request and what was sampled for it.

    Attributes:
        rid: its name on the wire; FOCUS's own name stands before the ``~``.
        prefix: conditioning ids, as they arrived.
        most: most ids asked for.
        sample: the truth, whatever was sent.
        version: weights that sampled it.
        fault: what was done to the reply.
        at_s: seconds since the server started.
        whole: the client could have got a whole reply.
    """

    rid: str
    prefix: tuple[int, ...]
    most: int
    sample: Sample
    version: str
    fault: Fault | None
    at_s: float
    whole: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain JSON; floats keep their bits."""
        fault = self.fault
        return {
            "rid": self.rid,
            "prefix": list(self.prefix),
            "most": self.most,
            "ids": list(self.sample.ids),
            "log_probs": list(self.sample.log_probs),
            "finish": self.sample.finish.value,
            "version": self.version,
            "fault": None if fault is None else fault.name,
            "kind": "clean" if fault is None else fault.kind.value,
            "detectable": fault is None or fault.is_detectable,
            "at_s": round(self.at_s, 6),
            "whole": self.whole,
        }


@dataclass
class ChaosLedger:
    """All entries, in order of arrival, and aborts that were asked for."""

    entries: list[Entry] = field(default_factory=list)
    aborts: int = 0

    def write(self, path: str | os.PathLike[str]) -> None:
        """One JSON line per entry."""
        lines = "".join(json.dumps(entry.to_dict()) + "\n" for entry in self.entries)
        Path(path).write_text(lines, "utf-8")
