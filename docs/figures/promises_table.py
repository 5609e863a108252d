"""The table of docs/reference/promises.md, from the figures that a full report stored.

focus promises --report --full --store     # measure everything anew, hours
python docs/figures/promises_table.py      # rewrite the table
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from focus.promises.base import Row
from focus.promises.stored import stored_rows
from focus.viz.numbers import count

PAGE = Path(__file__).parents[1] / "reference" / "promises.md"
BEGIN, END = "<!-- table of promises -->\n", "<!-- end of the table -->"
HEADER = (
    "| id | promise | figure | target | trials | 95 % bound | measured on |\n"
    "|---|---|---|---|---|---|---|\n"
)


def table(rows: Sequence[Row]) -> str:
    """Markdown, one line per row of the table."""
    return HEADER + "".join(map(line, rows))


def line(row: Row) -> str:
    """One row; a row that nothing measured says so."""
    promise, found = row.promise, row.measured
    target = f"{'≤' if promise.better == 'lower' else '≥'} {promise.target:g}"
    if found is None:
        cells = (promise.id, row.text, "–", target, "–", "–", "–")
    else:
        bound = "–" if row.bound is None else f"{row.bound:.1g}"
        missed = "" if row.met else " **(missed)**"
        where = ", ".join(row.measured_on.split(", ")[:2])
        figure = f"{found.figure:.3g} {promise.unit}{missed}"
        cells = (promise.id, row.text, figure, target, count(found.trials), bound, where)
    return f"| {' | '.join(cells)} |\n"


def rewritten(page: str, rows: Sequence[Row]) -> str:
    """The page with its table replaced."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table(rows) + END + after


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(rewritten(page, stored_rows()), encoding="utf-8")


if __name__ == "__main__":
    main()
