"""Overviews of runs: aligned rows, honest gaps, no markup from data."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from focus.viz.facts import Facts
from focus.viz.glyphs import ASCII, UNICODE
from focus.viz.rounds import ROUND_HEADER, critic_note, eta_s, round_line
from focus.viz.run import collection_overview, training_overview, trees_table
from focus.viz.summaries import training_rows

from .conftest import Draw, stored_tree

ROUND: dict[str, Any] = {
    "round": 3,
    "critic_version": "constant-0.5",
    "collection_success": 0.5312,
    "mixed_ratio": 0.75,
    "root_value": 0.5,
    "tokens_generated": 14_210,
    "collect_s": 12.0,
    "wall_s": 31.0,
}
JUDGED = {**ROUND, "critic_brier": 0.18, "constant_brier": 0.25, "critic_gate": True}
SUMMARY: dict[str, Any] = {
    "accuracy_before": 0.468,
    "accuracy_after": 0.682,
    "accuracy_ci95": {"before": [0.419, 0.517], "after": [0.637, 0.728]},
    "eval_problems": 400,
    "tokens_generated": 231_000,
    "critic_brier": 0.18,
    "constant_brier": 0.25,
    "critic_gate_round": 3,
    "rounds": 16,
    "optimizer_steps": 64,
    "train_wall_s": 500.0,
}

rounds = st.fixed_dictionaries(
    {"round": st.integers(0, 99_999), "tokens_generated": st.integers(0, 10**11)},
    optional={
        "collection_success": st.none() | st.floats(0, 1),
        "mixed_ratio": st.floats(0, 1),
        "critic_brier": st.floats(0, 1),
        "constant_brier": st.floats(0, 1),
        "collect_s": st.just(0.0) | st.floats(1.0, 1e5),
        "wall_s": st.floats(0, 1e6),
        "critic_version": st.sampled_from(["constant-0.5", "critic-0003"]),
    },
)


@given(rounds)
def test_every_round_is_one_line_under_its_header(metrics: dict[str, Any]) -> None:
    line = round_line(metrics)
    assert len(line) == len(ROUND_HEADER) < 80
    assert line.isprintable()


def test_a_round_says_who_steered_it() -> None:
    assert "learns" in round_line(ROUND)
    assert "steers" in round_line({**ROUND, "critic_version": "critic-0003"})


def test_a_round_without_judgement_has_no_note() -> None:
    assert critic_note(ROUND) == ""
    assert "steers the next round" in critic_note(JUDGED)


def test_nothing_is_foretold_before_the_first_round() -> None:
    assert eta_s([], rounds_left=4) is None


def test_a_finished_run_shows_result_and_rounds(draw: Draw) -> None:
    page = draw(
        training_overview({"task": "demo"}, [ROUND, JUDGED], SUMMARY, folder="r", glyphs=UNICODE)
    )
    assert "0.468 [0.419, 0.517] → 0.682 [0.637, 0.728]  (+0.214)" in page
    assert "passed its gate after round 3" in page
    assert "0.1800" in page
    assert "14.2k" in page


def test_an_unfinished_run_says_how_to_go_on(draw: Draw) -> None:
    page = draw(
        training_overview({"rounds": 16}, [ROUND], None, folder="runs/demo", glyphs=UNICODE)
    )
    assert "1 of 16 rounds applied; focus train --resume runs/demo goes on" in page


def test_a_run_without_rounds_is_shown_too(draw: Draw) -> None:
    assert "0 of 16" in draw(
        training_overview({"rounds": 16}, [], None, folder="r", glyphs=UNICODE)
    )


def test_a_critic_that_never_steered_says_why(draw: Draw) -> None:
    summary = {
        **SUMMARY,
        "critic_gate_round": None,
        "critic_gate_last": {"reason": "judged on 64 checkpoints; at least 500 are needed"},
    }
    page = draw(Facts(training_rows(summary, glyphs=UNICODE)), width=160)
    assert "it never steered (judged on 64 checkpoints" in page


def test_refused_rows_are_listed_with_their_line(draw: Draw) -> None:
    rows = [
        {"line": n, "status": "bad", "reason": "[red]\x1b[2J empty reference"} for n in range(1, 14)
    ]
    page = draw(
        collection_overview({"model": "[b]m"}, rows, None, folder="c", glyphs=UNICODE), width=200
    )
    assert "model [b]m" in page
    assert "line 1: bad: [red]␛[2J empty reference" in page
    assert "and 3 more without a tree" in page


def test_the_table_of_trees_keeps_its_figures_when_narrow(draw: Draw) -> None:
    trees = {f"trees/{n}.json": stored_tree(n, 20, "text") for n in range(3)}
    for glyphs in (UNICODE, ASCII):
        page = draw(trees_table(trees, best="trees/1.json", glyphs=glyphs), width=70)
        assert "nodes" in page
        assert "largest A" in page
        assert all(name in page for name in trees)
