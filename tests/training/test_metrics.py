"""Metrics follow the ledger, and a round's figures are what one counts by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from focus import Collection, Credit, Ledger
from focus.testing.trees import build_tree, end, fork
from focus.training.metrics import MetricsLog, round_metrics
from focus.training.rundir import RunDirectory
from focus.tree import Selection


def collection(*shape: Any, ledger: Ledger) -> Collection:
    """A tree whose every root edge was a launch of its own."""
    tree = build_tree(fork(0.25, *shape))
    for number, node in enumerate(tree.children(0)):
        launch = tree[node].incoming.provenance.expansion
        tree.selections.append(
            Selection(expansion=launch, node=0, phase=0, score=0, rivals=number, free_tokens=None)
        )
    return Collection(
        tree=tree,
        credit=Credit(estimator="refined", advantages={}),
        actor=(),
        critic=(),
        ledger=ledger,
        opening=len(tree.children(0)),
    )


def test_a_rounds_figures_by_hand() -> None:
    """Outcomes 1, 0 of the first tree and 1, 1 of the second: success 3/4, one of two mixed."""
    first = collection(
        end(1.0), end(0.0), ledger=Ledger(tokens_generated=10, tokens_used=8, requests_sent=2)
    )
    second = collection(
        end(1.0), end(1.0), ledger=Ledger(tokens_generated=30, tokens_used=12, requests_sent=4)
    )
    found = round_metrics(7, [first, second])
    assert found["round"] == 7
    assert found["collection_success"] == pytest.approx(0.75)
    assert found["mixed_ratio"] == pytest.approx(0.5)
    assert found["root_value"] == pytest.approx(0.25)
    assert (found["nodes"], found["leaves"], found["trees"]) == (6, 4, 2)
    assert (found["tokens_generated"], found["requests_sent"]) == (40, 6)
    assert found["eta_gen"] == pytest.approx(20 / 40)
    assert found["estimator"] == "refined"
    json.dumps(found, allow_nan=False)


def test_what_nothing_is_known_of_is_null_and_not_zero() -> None:
    bare = collection(ledger=Ledger(tokens_cached=None))
    found = round_metrics(0, [bare])
    assert found["collection_success"] is None
    assert found["tokens_cached"] is None
    assert found["eta_gen"] is None
    assert found["eta_prefill"] is None
    unvalued = replace(bare, tree=build_tree(fork(None, end(1.0))))
    assert round_metrics(0, [unvalued])["root_value"] is None


def lines(run: RunDirectory) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def test_lines_of_rounds_that_do_not_count_are_gone_after_a_restart(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    rounds = [{"round": r, "loss": 0.5 * r, "name": "x", "open": None} for r in range(3)]
    log = MetricsLog(run, [])
    for metrics in rounds:
        log.append(metrics)
    log.close()
    assert lines(run) == rounds
    MetricsLog(run, rounds[:2]).close()
    assert lines(run) == rounds[:2]
    again = MetricsLog(run, rounds[:2])
    again.append({"round": 2, "loss": 9.0})
    again.close()
    assert lines(run) == [*rounds[:2], {"round": 2, "loss": 9.0}]


def test_a_line_that_was_cut_by_a_crash_is_written_again(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    log = MetricsLog(run, [])
    log.append({"round": 0})
    log.close()
    run.metrics.write_bytes(run.metrics.read_bytes() + b'{"round": 1, "lo')
    MetricsLog(run, [{"round": 0}, {"round": 1}]).close()
    assert lines(run) == [{"round": 0}, {"round": 1}]
