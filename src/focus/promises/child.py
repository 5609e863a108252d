"""Measures one row: ``python -m focus.promises.child MODULE FUNCTION SIZE FOLDER``.

One JSON line on stdout per step of progress, ``{"done": 3, "of": 200}``, and one at the
end, ``{"figure": 0, "trials": 200, "detail": {}}`` or ``{"error": "StoreError: …"}``.
What the row itself prints goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from focus.promises.base import Measured, Size, Stand

__all__ = ("main",)

_EVERY_S = 0.25


def main(arguments: list[str]) -> None:
    """Measure a row, and tell how it goes."""
    module, function, size, folder = arguments
    report = _Report(os.dup(1))
    os.dup2(2, 1)  # a report stands alone on its line, whatever a row prints
    stand = Stand(size=Size(size), folder=Path(folder), progress=report.progress)
    report.tell(_result(getattr(importlib.import_module(module), function), stand))


class _Report:
    """Lines to the process that waits for them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last = 0.0

    def tell(self, line: dict[str, Any]) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def progress(self, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._last >= _EVERY_S:
            self._last = now
            self.tell({"done": done, "of": of})


def _result(measure: Callable[[Stand], Measured], stand: Stand) -> dict[str, Any]:
    try:
        found = measure(stand)
    except Exception as error:  # a row that breaks is a broken promise, never a broken report
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    return {"figure": found.figure, "trials": found.trials, "detail": dict(found.detail)}


if __name__ == "__main__":
    main(sys.argv[1:])
