"""Progress in a terminal and in a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from focus.cli.progress import LineProgress, LiveProgress, progress_on
from focus.cli.report import TrainReport

ROUND = {
    "round": 0,
    "critic_version": "constant-0.5",
    "collection_success": 0.5,
    "mixed_ratio": 1.0,
    "critic_brier": 0.2,
    "constant_brier": 0.25,
    "critic_gate": True,
    "tokens_generated": 1000,
    "collect_s": 2.0,
    "wall_s": 60.0,
}


def console(*, is_terminal: bool, term: str = "xterm") -> Console:
    return Console(
        file=io.StringIO(), force_terminal=is_terminal, width=120, _environ={"TERM": term}
    )


def written(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def test_a_file_gets_a_line_for_every_quarter_of_a_minute() -> None:
    ticks = iter(range(0, 1000, 4))
    to = console(is_terminal=False)
    with LineProgress(to, clock=lambda: float(next(ticks))) as progress:
        for done in range(11):
            progress.stage("collect", done, 10, "some tokens")
    assert written(to).splitlines() == [
        "collect: 4/10, some tokens, 16 s",
        "collect: 8/10, some tokens, 32 s",
    ]


@pytest.mark.parametrize(("is_terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_what_cannot_move_a_cursor_gets_no_control_codes(is_terminal: bool, term: str) -> None:
    to = console(is_terminal=is_terminal, term=term)
    with progress_on(to) as progress:
        progress.stage("x", 1, 2)
        progress.say("round", style="bold red")
        progress.status("below")
    assert written(to) == "round\n"


def test_a_terminal_shows_rate_and_status_and_cleans_up() -> None:
    to = console(is_terminal=True)
    with progress_on(to) as progress:
        assert isinstance(progress, LiveProgress)
        progress.stage("collect", 3, 10, "[red]note")
        progress.status("2 of 5 rounds")
        progress.say("a line that stays")
        progress.stage("train", 0, 2)
    shown = written(to)
    for part in ("collect", "3/10", "[red]note", "2 of 5 rounds", "a line that stays", "train"):
        assert part in shown
    assert shown.rstrip().endswith("\x1b[2K") or "\x1b[?25h" in shown


def test_a_run_is_told_round_by_round() -> None:
    to = console(is_terminal=False)
    report = TrainReport(LineProgress(to, clock=lambda: 0.0), rounds=3)
    report.stage("evaluate initial", 4, 4, "accuracy 0.250")
    report.round(ROUND)
    report.round({**ROUND, "round": 1, "critic_version": "critic-0001"})
    report.round({**ROUND, "round": 2, "critic_gate": False})
    lines = written(to).splitlines()
    assert lines[0] == "evaluate initial: accuracy 0.250 on 4 problems"
    assert lines[1].split()[:2] == ["round", "success"]
    assert "steers the next round" in lines[3]
    assert "steers" in lines[4]
    assert "does not steer yet" in lines[6]
    assert len(lines) == 7


def test_the_status_foretells_the_end() -> None:
    class Kept(LineProgress):
        told: RenderableType = ""

        def status(self, below: RenderableType) -> None:
            self.told = below

    progress = Kept(console(is_terminal=False))
    report = TrainReport(progress, rounds=5)
    report.stage("evaluate initial", 4, 4, "accuracy 0.250")
    report.round(ROUND)
    state = screen(progress.told)
    assert state[0].startswith("1 of 5 rounds | accuracy 0.250 before | success 0.500")
    assert state[0].endswith("about 4 min left")
    report.round({**ROUND, "round": 1, "collection_success": 0.75})
    trend = next(line for line in screen(progress.told) if line.startswith("success"))
    assert trend.endswith("0.500 → 0.750 (+0.250)")


def screen(below: RenderableType) -> list[str]:
    to = Console(file=io.StringIO(), width=200)
    to.print(below)
    return [line.rstrip() for line in written(to).splitlines()]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_ends_when_the_work_fails(is_terminal: bool) -> None:
    def work() -> None:
        with progress_on(console(is_terminal=is_terminal)) as progress:
            progress.stage("x", 0, 1)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        work()
