"""A run as flat tables: rounds, trees, nodes and launches, joined by the tree's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from focus.records.tree_store import StoredTree
from focus.tree import Evidence, Node

__all__ = ("TABLES", "Column", "launch_rows", "node_rows", "round_rows", "tree_rows")

Kind = Literal["text", "int", "real", "flag", "ints", "reals"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; every cell of every kind may be missing.

    Attributes:
        name: the key in a row.
        kind: "ints" and "reals" are lists.
    """

    name: str
    kind: Kind


def _columns(**kinds: Kind) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in kinds.items())


TABLES: Mapping[str, tuple[Column, ...]] = {
    "trees": _columns(
        tree="text", run="text", round="int", attempt="int", problem="text", problem_key="text",
        prompt="text", label="text", policy_version="text", critic_version="text",
        estimator="text", nodes="int", launches="int", tokens="int", outcomes="reals",
        failures="int",
    ),
    "nodes": _columns(
        tree="text", node="int", parent="int", depth="int", terminal="flag", truncated="flag",
        value="real", outcome="real", evidence_count="int", evidence_mean="real",
        advantage="real", refined_value="real", target="real", target_count="int", kind="text",
        finish="text", step_reward="real", expansion="int", index="int", phase="int",
        request="text", tries="int", ids="ints", log_probs="reals", sampled="ints", text="text",
    ),
    "launches": _columns(
        tree="text", launch="int", node="int", phase="int", score="real", rivals="int",
        free_tokens="int",
    ),
}  # fmt: skip
"""Columns of every table but the rounds, whose columns are the run's own metrics."""


def round_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Metrics by round, each row with every name that any round has.

    >>> list(round_rows([{"round": 0}, {"round": 1, "x": 0.5}]))
    [{'round': 0, 'x': None}, {'round': 1, 'x': 0.5}]
    """
    names = sorted({name for row in rows for name in row})
    for row in rows:
        yield {name: row.get(name) for name in names}


def tree_rows(name: str, stored: StoredTree) -> Iterator[dict[str, Any]]:
    """One row: what the tree is of, and how it came out."""
    tree, header = stored.tree, stored.tree.header
    label = header.problem.label
    yield {
        "tree": name,
        "run": header.identity.run,
        "round": header.identity.round,
        "attempt": header.identity.attempt,
        "problem": str(header.problem.id),
        "problem_key": header.problem.key,
        "prompt": "\n".join(m.content for m in header.problem.messages if m.role != "system"),
        "label": str(label) if isinstance(label, str | int | float) else None,
        "policy_version": header.policy_version,
        "critic_version": header.critic_version,
        "estimator": None if stored.credit is None else stored.credit.estimator,
        "nodes": len(tree),
        "launches": len(tree.selections),
        "tokens": tree.sampled_tokens(),
        "outcomes": [tree.outcome(node) for node in tree.terminals()],
        "failures": len(stored.failures),
    }


def node_rows(name: str, stored: StoredTree) -> Iterator[dict[str, Any]]:
    """One row per node: its worth, its credit, and the exact tokens of the edge into it.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> rows = list(node_rows("t", StoredTree(tree=build_tree(fork(0.5, end(1.0))))))
    >>> [(row["node"], row["value"], row["outcome"]) for row in rows]
    [(0, 0.5, None), (1, None, 1.0)]
    """
    evidence = Evidence.of(stored.tree)
    for node in stored.tree:
        seen = evidence[node.id]
        yield {
            "tree": name,
            "node": node.id,
            "parent": node.parent,
            "depth": node.depth,
            "terminal": node.is_terminal,
            "truncated": node.is_truncated,
            "value": node.value,
            "outcome": stored.tree.outcome(node.id) if node.is_terminal else None,
            "evidence_count": seen.count,
            "evidence_mean": seen.mean if seen.count else None,
            **_credit(stored, node.id),
            **_edge(stored, node),
            "text": stored.texts.get(node.id),
        }


def _credit(stored: StoredTree, node_id: int) -> dict[str, Any]:
    credit = stored.credit
    target = None if credit is None else credit.targets.get(node_id)
    return {
        "advantage": None if credit is None else credit.advantages.get(node_id),
        "refined_value": None if credit is None else credit.values.get(node_id),
        "target": None if target is None else target.value,
        "target_count": None if target is None else target.count,
    }


def _edge(stored: StoredTree, node: Node[None]) -> dict[str, Any]:
    """Per token: its id, its log-prob (0 where it was given) and whether it was sampled."""
    edge = node.edge
    if edge is None:
        return {"ids": list(stored.tree.header.prompt_ids)}
    source = edge.provenance
    return {
        "kind": edge.kind,
        "finish": edge.finish.value,
        "step_reward": edge.step_reward,
        "expansion": source.expansion,
        "index": source.index,
        "phase": source.phase,
        "request": source.request_id,
        "tries": source.tries,
        "ids": list(edge.ids),
        "log_probs": [v for span in edge.spans for v in span.log_probs or [0.0] * len(span.ids)],
        "sampled": [int(span.is_sampled) for span in edge.spans for _ in span.ids],
    }


def launch_rows(name: str, stored: StoredTree) -> Iterator[dict[str, Any]]:
    """One row per purchase: why the search made it. The score of an untried node is missing."""
    for selection in stored.tree.selections:
        yield {
            "tree": name,
            "launch": selection.expansion,
            "node": selection.node,
            "phase": selection.phase,
            "score": None if selection.score == float("inf") else selection.score,
            "rivals": selection.rivals,
            "free_tokens": selection.free_tokens,
        }
