"""The table of demo runs in the README, from the runs' own summaries.

python docs/figures/demo_table.py RUN [RUN ...]    # keep their figures, rewrite the table
python docs/figures/demo_table.py                  # rewrite the table
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("demo.json")
README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- demo table -->\n", "<!-- end of demo table -->"
HEADER = (
    "| seed | accuracy before | after (95 % interval) | held-out problems | tokens | "
    "Brier, critic / constant | critic first steers in round | training |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def stored() -> list[dict[str, Any]]:
    """Summaries kept so far; none before the first run was recorded."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else []


def table(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Markdown; nothing for no runs."""
    return HEADER + "".join(map(row, summaries)) + "\n" if summaries else ""


def row(summary: Mapping[str, Any]) -> str:
    low, high = summary["accuracy_ci95"]["after"]
    opened = summary["critic_gate_round"]
    cells = (
        str(summary["seed"]),
        f"{summary['accuracy_before']:.3f}",
        f"{summary['accuracy_after']:.3f} ({low:.3f} to {high:.3f})",
        str(summary["eval_problems"]),
        f"{summary['tokens_generated']:,}",
        f"{summary['critic_brier']:.3f} / {summary['constant_brier']:.3f}",
        "never" if opened is None else str(opened + 1),
        f"{summary['train_wall_s'] / 60:.0f} min",
    )
    return f"| {' | '.join(cells)} |\n"


def rewritten(readme: str, summaries: Sequence[Mapping[str, Any]]) -> str:
    """The README with its table replaced."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table(summaries) + END + after


def main() -> None:
    if runs := sys.argv[1:]:
        texts = [(Path(run) / "summary.json").read_text(encoding="utf-8") for run in runs]
        summaries = [json.loads(text) for text in texts]
        STORED.write_text(json.dumps(summaries, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    README.write_text(rewritten(README.read_text(encoding="utf-8"), stored()), encoding="utf-8")


if __name__ == "__main__":
    main()
