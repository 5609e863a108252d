#!/usr/bin/env python3
"""What ``import focus`` costs, beside ``import numpy`` in the same minutes on the same machine.

    python bench/import_cost.py [RUNS]

Each import runs in a fresh interpreter; the candidates take turns, so a busy machine slows all
of them alike. Prints medians and their ratio to numpy's.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

__all__ = ("BASELINE", "CANDIDATES", "HEAVY", "loaded_by", "median_seconds")

BASELINE = "numpy"
CANDIDATES = ("focus", "focus.integrations", "focus.integrations.slime")
HEAVY = ("anyio", "asyncio", "httpx", "numpy", "rich", "torch", "transformers", "typer")
"""What none of the candidates may load."""

_TIMED = """
import sys, time
started = time.perf_counter()
__import__(sys.argv[1])
print(time.perf_counter() - started)
"""
_LOADED = """
import sys
__import__(sys.argv[1])
print(*sys.modules)
"""


def _run(program: str, module: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, module], capture_output=True, text=True, check=True
    )
    return done.stdout


def median_seconds(modules: tuple[str, ...], *, runs: int) -> dict[str, float]:
    """Median import time of each module over `runs` fresh interpreters, taken in turns."""
    times: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(runs):
        for module in modules:
            times[module].append(float(_run(_TIMED, module)))
    return {module: statistics.median(found) for module, found in times.items()}


def loaded_by(module: str) -> set[str]:
    """Every module that is loaded once `module` is."""
    return set(_run(_LOADED, module).split())


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    medians = median_seconds((BASELINE, *CANDIDATES), runs=runs)
    for module, seconds in medians.items():
        heavy = ", ".join(sorted(loaded_by(module) & set(HEAVY))) or "nothing heavy"
        ratio = seconds / medians[BASELINE]
        print(f"{module:26} {1000 * seconds:8.1f} ms  {ratio:5.2f} x numpy  loads {heavy}")


if __name__ == "__main__":
    main()
