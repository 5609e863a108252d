"""One tree as JSON for the page: columns by node, so that 10⁴ nodes stay small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus.credit import Credit
from focus.records.tree_store import StoredTree
from focus.tree import Evidence, Node, Selection, Tree
from focus.viz.web.credits import comparison
from focus.viz.web.figures import figure

__all__ = ("Piece", "tree_data")

Piece = Callable[[int], str]
"""Text of one token id."""


def tree_data(stored: StoredTree, *, key: str, piece: Piece | None = None) -> dict[str, Any]:
    """Everything the page shows of one tree.

    Args:
        stored: the tree with its texts, credit and failures.
        key: names the tree in links.
        piece: decodes single tokens; without it the page shows ids.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> data = tree_data(StoredTree(tree=build_tree(fork(0.5, end(1.0)))), key="0/t.json")
    >>> data["nodes"]["parent"], data["nodes"]["outcome"]
    ([None, 0], [None, 1.0])
    """
    tree = stored.tree
    compared = comparison(stored)
    return {
        "key": key,
        "header": _header(tree),
        "nodes": _nodes(stored),
        "evidence": _evidence(tree),
        "launches": [_launch(selection) for selection in tree.selections],
        "credits": {name: _credit(credit) for name, credit in compared.credits.items()},
        "refused": dict(compared.refused),
        "stored_credit": None if stored.credit is None else stored.credit.estimator,
        "failures": [
            {"stage": f.stage, "node": f.node, "kind": f.kind, "message": f.message}
            for f in stored.failures
        ],
        "pieces": {} if piece is None else {str(i): piece(i) for i in _distinct_ids(tree)},
    }


def _header(tree: Tree[None]) -> dict[str, Any]:
    header = tree.header
    problem, returns, sampling = header.problem, header.returns, header.sampling
    label = problem.label
    return {
        "problem": str(problem.id),
        "messages": [[message.role, message.content] for message in problem.messages],
        "label": str(label) if isinstance(label, str | int | float) else None,
        "round": header.identity.round,
        "attempt": header.identity.attempt,
        "policy": header.policy_version,
        "critic": header.critic_version,
        "range": list(header.critic_range),
        "returns": f"γ {returns.discount:g}, β {returns.step_weight:g}, "
        f"κ {returns.prior_strength:g}",
        "temperature": sampling.temperature,
        "prompt_tokens": len(header.prompt_ids),
    }


def _nodes(stored: StoredTree) -> dict[str, Any]:
    tree = stored.tree
    edges = [node.edge for node in tree]
    sources = [None if edge is None else edge.provenance for edge in edges]
    return {
        "parent": [node.parent for node in tree],
        "value": [figure(node.value) for node in tree],
        "outcome": [tree.outcome(node.id) if node.is_terminal else None for node in tree],
        "truncated": [int(node.is_truncated) for node in tree],
        "text": [stored.texts.get(node.id) for node in tree],
        "kind": [None if edge is None else edge.kind for edge in edges],
        "finish": [None if edge is None else edge.finish.value for edge in edges],
        "step_reward": [0.0 if edge is None else edge.step_reward for edge in edges],
        "expansion": [None if source is None else source.expansion for source in sources],
        "index": [None if source is None else source.index for source in sources],
        "phase": [None if source is None else source.phase for source in sources],
        "request": [None if source is None else source.request_id for source in sources],
        "tries": [None if source is None else source.tries for source in sources],
        "spans": [_spans(tree, node) for node in tree],
        "rebased": [None if node.rebased is None else list(node.rebased) for node in tree],
    }


def _spans(tree: Tree[None], node: Node[None]) -> list[list[Any]]:
    """[ids, log-probs or None where the policy did not sample them] per span."""
    if node.edge is None:
        return [[list(tree.header.prompt_ids), None]]
    return [
        [
            list(span.ids),
            None if span.log_probs is None else [figure(value) for value in span.log_probs],
        ]
        for span in node.edge.spans
    ]


def _evidence(tree: Tree[None]) -> dict[str, Any]:
    evidence = Evidence.of(tree)
    stats = [evidence[node.id] for node in tree]
    return {
        "count": [s.count for s in stats],
        "mean": [figure(s.mean) if s.count else None for s in stats],
    }


def _launch(selection: Selection) -> dict[str, Any]:
    """An untried checkpoint scores +infinity; the page says "untried" for none."""
    return {
        "expansion": selection.expansion,
        "node": selection.node,
        "phase": selection.phase,
        "score": figure(selection.score),
        "rivals": selection.rivals,
        "free_tokens": selection.free_tokens,
    }


def _credit(credit: Credit) -> dict[str, Any]:
    return {
        "advantages": {str(n): figure(a) for n, a in credit.advantages.items()},
        "targets": {str(n): [figure(t.value), t.count] for n, t in credit.targets.items()},
        "values": {str(n): figure(v) for n, v in credit.values.items()},
        "diagnostics": {
            str(n): {name: figure(number) for name, number in named.items()}
            for n, named in credit.diagnostics.items()
        },
    }


def _distinct_ids(tree: Tree[None]) -> list[int]:
    ids = set(tree.header.prompt_ids)
    for node in tree.edges():
        ids.update(node.incoming.ids, node.rebased or ())
    return sorted(ids)
