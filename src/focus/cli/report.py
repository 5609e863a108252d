"""What a training run tells while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from focus.cli.progress import WorkProgress
from focus.viz.glyphs import UNICODE, Glyphs
from focus.viz.numbers import count, duration, fraction
from focus.viz.rounds import ROUND_HEADER, critic_note, eta_s, round_line, trends

__all__ = ("TrainReport",)


class TrainReport:
    """A line per round under one header, bars for the work within; below, state and trends.

    Args:
        progress: where it is drawn.
        rounds: of the whole run.
        glyphs: signs to use.
    """

    def __init__(self, progress: WorkProgress, *, rounds: int, glyphs: Glyphs = UNICODE) -> None:
        self._progress = progress
        self._rounds = rounds
        self._glyphs = glyphs
        self._seen: list[Mapping[str, Any]] = []
        self._accuracy = ""
        self._wall_s: list[float] = []
        self._tokens = 0
        self._steered = False

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        """Progress of one piece of a round, or of an evaluation."""
        self._progress.stage(name, done, total, note)
        if name.startswith("evaluate") and done == total:
            self._progress.say(f"{name}: {note} on {total} problems")
            self._accuracy = self._accuracy or f"{note} before"

    def round(self, metrics: Mapping[str, Any]) -> None:
        """One line; and one more when the critic gains or loses the wheel."""
        if not self._wall_s:
            self._progress.say(ROUND_HEADER, style="bold")
        self._seen.append(metrics)
        self._wall_s.append(metrics["wall_s"])
        self._tokens += metrics["tokens_generated"]
        self._progress.say(round_line(metrics))
        steers = bool(metrics.get("critic_gate", self._steered))
        if steers != self._steered:
            self._steered = steers
            self._progress.say(f"      {critic_note(metrics)}", style="cyan")
        self._progress.status(self._screen(metrics))

    def _screen(self, metrics: Mapping[str, Any]) -> RenderableType:
        """How far the run is, and how success, critic and root value have moved."""
        state = Text(self._status(metrics), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(state, trends(self._seen, glyphs=self._glyphs))

    def _status(self, metrics: Mapping[str, Any]) -> str:
        success = fraction(metrics["collection_success"])
        left = eta_s(self._wall_s, rounds_left=self._rounds - 1 - metrics["round"])
        parts = [
            f"{metrics['round'] + 1} of {self._rounds} rounds",
            self._accuracy,
            f"success {success}",
            critic_note(metrics),
            f"{count(self._tokens)} tokens",
            f"about {duration(left)} left" if left else "",
        ]
        return " | ".join(part for part in parts if part)
