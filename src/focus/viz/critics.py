"""The critics of a store, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from focus.critic.snapshot import Snapshot
from focus.training.judgement import Bin, Estimate, Judgement, Part
from focus.viz.facts import Facts
from focus.viz.glyphs import Glyphs
from focus.viz.numbers import count, fraction, signed
from focus.viz.text import visible

__all__ = ("CriticPage", "Shown", "versions_table")

_BAR = 20


@dataclass(frozen=True)
class Shown:
    """A snapshot with its judgement read back, if it has one."""

    snapshot: Snapshot
    judgement: Judgement | None

    @property
    def figures(self) -> Mapping[str, float]:
        """Numbers of its training; empty for a critic that was trained elsewhere."""
        return {
            name: value
            for name, value in self.snapshot.facts.metrics.items()
            if isinstance(value, int | float)
        }


def versions_table(critics: Sequence[Shown], *, current: str | None, glyphs: Glyphs) -> Table:
    """One line per version, oldest first."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("version", no_wrap=True, min_width=13)
    for title in ("records", "held-out", "Brier", "constant", "gain", "root bias"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("steers", no_wrap=True)
    for shown in critics:
        is_current = shown.snapshot.version == current
        table.add_row(*_cells(shown, glyphs, current=is_current), style="bold" * is_current)
    return table


def _cells(shown: Shown, glyphs: Glyphs, *, current: bool) -> list[str]:
    snapshot, found = shown.snapshot, shown.judgement
    whole = None if found is None else found.parts["all"]
    root = None if found is None else found.parts.get("root")
    return [
        f"{snapshot.version}{' *' * current}",
        count(snapshot.facts.records.count),
        fraction(shown.figures.get("held_out_error"), digits=4),
        fraction(None if whole is None else whole.brier.mean, digits=4),
        fraction(None if whole is None else whole.constant_brier.mean, digits=4),
        signed(None if whole is None else whole.gain.mean, digits=4),
        signed(None if root is None else root.bias.mean),
        glyphs.right if snapshot.verdict.steering else glyphs.wrong,
    ]


@dataclass(frozen=True)
class CriticPage:
    """One version: verdict, figures by part, reliability."""

    shown: Shown
    glyphs: Glyphs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Facts(_facts(self.shown))
        found = self.shown.judgement
        if found is None:
            return
        yield Text()
        yield _parts_table(found.parts)
        yield Text()
        yield _reliability_table(found.reliability)


def _facts(shown: Shown) -> list[tuple[str, str]]:
    snapshot, found = shown.snapshot, shown.judgement
    used = snapshot.facts.records
    rounds = "; ".join(
        f"{visible(run)}, {_rounds(first, last)}" for run, (first, last) in used.rounds.items()
    )
    rows = [
        ("verdict", visible(str(snapshot.verdict))),
        ("published", f"{visible(snapshot.created[:16].replace('T', ' '))} UTC"),
        ("trained on", f"{used.count} records" + (f" of {rounds}" if rounds else "")),
        ("parent", snapshot.facts.parent or "none"),
        ("constant", fraction(snapshot.facts.constant)),
    ]
    if found is None:
        return rows
    judged = f"{found.gate.samples} fresh outcomes of {found.gate.problems} problems"
    versions = [visible(str(name)) for name in found.outcomes.get("policy_versions", [])]
    rows.append(("judged on", judged + (f", by {', '.join(versions)}" if versions else "")))
    if found.previous is not None:
        rows.append((f"against {found.previous.version}", f"gain {_interval(found.previous.gain)}"))
    return rows


def _rounds(first: int, last: int) -> str:
    """
    >>> _rounds(3, 3), _rounds(3, 5)
    ('round 3', 'rounds 3 to 5')
    """
    return f"round {first}" if first == last else f"rounds {first} to {last}"


def _parts_table(parts: Mapping[str, Part]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("part", no_wrap=True)
    for title in ("n", "Brier", "constant", "depth", "gain", "95 %", "bias", "excess"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, part in parts.items():
        table.add_row(
            name,
            str(part.samples),
            fraction(part.brier.mean, digits=4),
            fraction(part.constant_brier.mean, digits=4),
            fraction(part.depth_brier.mean, digits=4),
            signed(part.gain.mean, digits=4),
            f"{signed(part.gain.low)} to {signed(part.gain.high)}",
            signed(part.bias.mean),
            signed(part.overconfidence.mean),
        )
    return table


def _interval(estimate: Estimate) -> str:
    low, high = signed(estimate.low, digits=4), signed(estimate.high, digits=4)
    return f"{signed(estimate.mean, digits=4)} [{low}, {high}]"


def _reliability_table(bars: Sequence[Bin]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("predicted", "came true", "95 %", "n"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("# came true, | predicted", no_wrap=True)
    for bar in bars:
        outcome = bar.outcome
        table.add_row(
            fraction(bar.prediction),
            fraction(outcome.mean),
            f"{fraction(outcome.low)} to {fraction(outcome.high)}",
            str(bar.samples),
            _ruler(bar),
        )
    return table


def _ruler(bar: Bin) -> str:
    """Outcomes as a bar of #, the prediction as a | on the same scale."""
    cells = ["#" if place < bar.outcome.mean * _BAR else "." for place in range(_BAR + 1)]
    cells[min(_BAR, max(0, round(bar.prediction * _BAR)))] = "|"
    return "".join(cells)
