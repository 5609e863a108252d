"""A6: weights that change at any request of a tree never make a mixed tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from focus.promises.base import Measured, Stand
from focus.promises.gauntlet import Gauntlet, checked, run
from focus.testing.chaos import Fault
from focus.testing.chaos.faults import Family, Kind, spoiled

__all__ = ("never_mixed",)


def never_mixed(stand: Stand) -> Measured:
    """Trees of two versions among those exported, over changes at each request of a tree.

    A weight change lasts: every reply from the n-th on is of the new weights.
    """
    tokens = stand.pick(quick=40, full=400)
    mixed = accepted = flips = 0
    at = 0
    while True:
        folder = stand.folder / str(at)
        folder.mkdir()
        requests, exported, findings = _flipped_at(at, tokens, folder)
        if requests <= at:
            break
        flips += 1
        accepted += exported
        mixed += findings
        at += 1
        stand.progress(at, at + 1)
    return Measured(mixed + accepted, flips, {"flips": flips, "exported_after_a_flip": accepted})


@dataclass(frozen=True)
class _From:
    """The server's weights change before the n-th request."""

    number: int

    def fault(self, name: str, number: int) -> Fault | None:
        return _NEW_WEIGHTS if number >= self.number else None


def _renamed(body: dict[str, dict[str, str]], scene: object) -> None:
    body["meta_info"]["weight_version"] = "chaos-2"


_NEW_WEIGHTS = Fault("new_weights", Family.CONTENT, Kind.FATAL, spoiled(_renamed))


def _flipped_at(number: int, tokens: int, folder: Path) -> tuple[int, int, int]:
    """Requests that arrived, trees that were exported although a flip was met, findings."""
    chosen = Gauntlet(plan=_From(number), trees=1, tokens=tokens, deadline_s=30.0)
    anyio.run(partial(run, chosen, folder))
    verdict = checked(folder)
    requests = sum(row["sent"] for row in verdict["matrix"].values())
    is_flipped = "new_weights" in verdict["matrix"]
    exported = verdict["delivery"]["trees_accepted"] if is_flipped else 0
    return requests, exported, len(verdict["findings"])
