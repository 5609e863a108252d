"""A tree whose every text is hostile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from focus.credit import RefinedTd
from focus.errors import Failure
from focus.problem import Problem
from focus.records.tree_store import StoredTree
from focus.testing.trees import build_tree, chain, end, fork
from focus.tree import Provenance, Selection, Tree

HOSTILE = (
    "</script><script>window.hurt = 1</script><!--<script>"
    '<img src=x onerror="window.hurt = 2">\u2028\u202e\x1b[31m\x00'
    "'\"><svg onload=window.hurt=3></textarea></title>]]>&lt;&#60;${window.hurt = 4}"
)


@pytest.fixture
def hostile() -> StoredTree:
    """HOSTILE in the problem, the label, the texts, a request's name and a failure."""
    drawn = build_tree(fork(0.5, chain([0.5], outcome=1.0), end(0.0)))
    problem = Problem(id=HOSTILE, prompt=HOSTILE, label=HOSTILE)
    header = replace(drawn.header, problem=problem, policy_version=HOSTILE)
    tree: Tree[None] = Tree(header, None, value=0.5)
    for node in drawn.edges():
        assert node.parent is not None
        source = Provenance(expansion=node.id, index=0, phase=0, request_id=HOSTILE)
        edge = replace(node.incoming, provenance=source)
        tree.attach(node.parent, edge, None, value=node.value, is_terminal=node.is_terminal)
        tree.selections.append(
            Selection(
                expansion=node.id, node=node.parent, phase=0, score=0.5, rivals=1, free_tokens=9
            )
        )
    failure = Failure(stage="expansion", expansion=1, node=0, kind=HOSTILE, message=HOSTILE)
    return StoredTree(
        tree=tree,
        texts={node.id: HOSTILE for node in tree},
        credit=RefinedTd().estimate(tree),
        failures=(failure,),
    )


@pytest.fixture
def plain() -> StoredTree:
    """The same shape without a text."""
    tree = build_tree(fork(0.5, chain([0.5], outcome=1.0), end(0.0)))
    return StoredTree(tree=tree, credit=RefinedTd().estimate(tree))
