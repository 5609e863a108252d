"""A run as JSON for the page: rounds, result, one row per tree, how well values hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from focus.records.tree_store import StoredTree
from focus.tree import Evidence
from focus.viz.text import clipped
from focus.viz.web.figures import figure

__all__ = ("calibration", "run_data", "tree_row")

_PROMPT_CHARACTERS = 240
_BINS = 10


def run_data(
    *,
    name: str,
    kind: str,
    settings: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any] | None,
    trees: Sequence[Mapping[str, Any]],
    left_out: int = 0,
) -> dict[str, Any]:
    """One run without the bodies of its trees.

    Args:
        name: what the page calls it.
        kind: "training", "collection" or "tree".
        settings, rows, summary: as `focus show` reads them.
        trees: rows of `tree_row`.
        left_out: earlier trees of the run that the page does not list.
    """
    return {
        "name": name,
        "kind": kind,
        "settings": dict(settings),
        "rounds": [dict(row) for row in rows] if kind == "training" else [],
        "without_tree": [dict(row) for row in rows if row.get("reason")],
        "summary": None if summary is None else dict(summary),
        "left_out": left_out,
        "calibration": calibration(row["calibration"] for row in trees),
        "trees": [{k: v for k, v in row.items() if k != "calibration"} for row in trees],
    }


def tree_row(stored: StoredTree, *, key: str) -> dict[str, Any]:
    """What a list of thousands of trees shows of one.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> row = tree_row(StoredTree(tree=build_tree(fork(0.5, end(1.0), end(0.0)))), key="0/t")
    >>> row["right"], row["wrong"], row["nodes"]
    (1, 1, 3)
    """
    tree, credit = stored.tree, stored.credit
    header = tree.header
    outcomes = [tree.outcome(node) for node in tree.terminals()]
    right = sum(1 for outcome in outcomes if outcome > 0)
    prompt = " / ".join(m.content for m in header.problem.messages if m.role != "system")
    advantages = list(credit.advantages.values()) if credit else []
    return {
        "key": key,
        "problem": str(header.problem.id),
        "problem_key": header.problem.key,
        "prompt": clipped(prompt, _PROMPT_CHARACTERS),
        "round": header.identity.round,
        "estimator": None if credit is None else credit.estimator,
        "nodes": len(tree),
        "forks": sum(1 for node in tree if len(tree.children(node.id)) > 1),
        "launches": len(tree.selections),
        "tokens": tree.sampled_tokens(),
        "right": right,
        "wrong": len(outcomes) - right,
        "unfinished": len(tree.leaves()) - len(outcomes),
        "failures": len(stored.failures),
        "root_value": figure(tree.root.value),
        "largest": figure(max(advantages, key=abs, default=None)),
        "calibration": _bins(stored),
    }


def _bins(stored: StoredTree) -> list[list[float]]:
    """Per bin of V: rollouts, their summed V, their summed return."""
    tree = stored.tree
    low, high = tree.header.critic_range
    evidence = Evidence.of(tree)
    bins = [[0.0, 0.0, 0.0] for _ in range(_BINS)]
    for node in tree:
        seen = evidence[node.id]
        if node.is_terminal or node.value is None or not seen.count:
            continue
        place = (node.value - low) / (high - low) if high > low else 0.0
        held = bins[min(_BINS - 1, max(0, int(place * _BINS)))]
        held[0] += seen.count
        held[1] += seen.count * node.value
        held[2] += seen.count * seen.mean
    return bins


def calibration(bins_by_tree: Iterable[Sequence[Sequence[float]]]) -> list[dict[str, Any]]:
    """Mean critic value beside mean return of the rollouts from there, by bins of V.

    >>> calibration([[[2.0, 0.2, 1.0]], [[2.0, 0.2, 0.0]]])
    [{'rollouts': 4, 'value': 0.1, 'outcome': 0.25}]
    """
    totals: list[list[float]] = []
    for bins in bins_by_tree:
        totals = totals or [[0.0, 0.0, 0.0] for _ in bins]
        for total, held in zip(totals, bins, strict=True):
            for place, number in enumerate(held):
                total[place] += number
    return [
        {"rollouts": int(n), "value": figure(value / n), "outcome": figure(outcome / n)}
        for n, value, outcome in totals
        if n
    ]
