"""Overhead and limit figures as a table, and as JSON.

python -m bench.overhead --quick --json FILE [--peers PYTHON] [--vllm PYTHON]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from bench.overhead.conversion import conversion_figures
from bench.overhead.figure import Figure, write_figures
from bench.overhead.growth import growth_figures
from bench.overhead.packing import packing_figures
from bench.overhead.peers import peer_figures
from bench.overhead.prefill import prefill_figures
from bench.overhead.running import running_figures
from rich.console import Console
from rich.table import Table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, a few minutes")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument(
        "--peers", default=sys.executable, help="a Python that has other libraries to compare with"
    )
    parser.add_argument(
        "--vllm",
        default=os.environ.get("FOCUS_VLLM_PYTHON") or None,
        help="a Python that has vLLM, to serve the shipped models with",
    )
    options = parser.parse_args()
    figures = list(_measured(options.peers, options.vllm, quick=options.quick))
    Console().print(table(figures))
    if options.json is not None:
        command = "focus bench --quick --json=figures.json"
        write_figures(options.json, figures, what="Overhead and limits", command=command)
    return 0


def _measured(peers: str, vllm: str | None, *, quick: bool) -> Iterator[Figure]:
    for figure in chain(
        conversion_figures(),
        peer_figures(peers),
        growth_figures(),
        packing_figures(quick=quick),
        running_figures(quick=quick),
        [] if vllm is None else prefill_figures(vllm, prompts=8 if quick else 32),
    ):
        print(f"{figure.id} {figure.what}: {figure.value:.3g}", file=sys.stderr, flush=True)
        yield figure


def table(figures: list[Figure]) -> Table:
    """The figures, one a row, for a terminal."""
    shown = Table(title="Overhead and limits", title_justify="left")
    shown.add_column("id", no_wrap=True)
    shown.add_column("what")
    for name in ("value", "goal", "met"):
        shown.add_column(name, justify="right", no_wrap=True)
    for figure in figures:
        sign = "<=" if figure.better == "lower" else ">="
        shown.add_row(
            figure.id,
            figure.what,
            f"{figure.value:.3g}",
            f"{sign} {figure.goal:g}",
            "yes" if figure.met else "no",
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
