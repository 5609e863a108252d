"""P4 beside others: the same credited tree, turned into samples by other libraries' own code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.overhead.figure import Figure
from bench.overhead.timing import seconds
from bench.overhead.trees import fixed_tree

from focus.credit import Credit, DirectBranchTd
from focus.records import actor_records
from focus.tree import Tree

__all__ = ("peer_figures",)

_WORKER = Path(__file__).with_name("peer_worker.py")
_DEADLINE_S = 300


def peer_figures(interpreter: str = sys.executable) -> Iterator[Figure]:
    """Ours over theirs, for each library that the interpreter has; the others are named."""
    tree = fixed_tree((6, 6, 6), segment=256)
    credit = DirectBranchTd().estimate(tree)
    ours = seconds(lambda: actor_records(tree, credit, packing="path"))
    tokens = sum(len(tree.context(leaf)) for leaf in tree.leaves())
    for name, found in _measured(interpreter, tree, credit).items():
        if "missing" in found:
            print(f"P4 against {name}: n/a: {found['missing']}", file=sys.stderr)
            continue
        theirs = found["seconds"]
        each = f"{ours / tokens * 1e9:.0f} against {theirs / tokens * 1e9:.0f} ns a token of a path"
        yield Figure(
            id="P4",
            what=f"tree to checked path samples against {name} {found['version']} ({each})",
            value=ours / theirs,
            unit="ratio",
            goal=1,
            floor=0.0,
        )


def _measured(interpreter: str, tree: Tree[None], credit: Credit) -> dict[str, Any]:
    finished = subprocess.run(
        [interpreter, str(_WORKER)],
        input=json.dumps(_plain(tree, credit)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_DEADLINE_S,
    )
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return found


def _plain(tree: Tree[None], credit: Credit) -> dict[str, Any]:
    return {
        "prompt": tree.header.prompt_ids,
        "parents": [-1 if node.parent is None else node.parent for node in tree],
        "ids": [() if node.edge is None else node.edge.ids for node in tree],
        "log_probs": [() if node.edge is None else node.edge.log_probs for node in tree],
        "advantages": [credit.advantages.get(node.id, 0.0) for node in tree],
    }
