"""What is drawn of a tree, and what is not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from focus.credit import RefinedTd
from focus.records.tree_store import StoredTree
from focus.testing.trees import build_tree, chain, end, fork, random_sketch
from focus.tree import NodeId, Selection
from focus.viz.ascii import AsciiGuides
from focus.viz.glyphs import ASCII
from focus.viz.page import PageOptions, best_example, tree_page
from focus.viz.tree import Strand, strands

from .conftest import Draw, stored_tree

trees = st.builds(
    lambda seed, nodes: build_tree(random_sketch(random.Random(seed), nodes=nodes, eagerness=0.4)),
    st.integers(0, 2**32),
    st.integers(2, 80),
)


def all_strands(strand: Strand) -> Iterator[Strand]:
    yield strand
    for branch in strand.branches:
        yield from all_strands(branch)


def below(tree, node: NodeId) -> set[NodeId]:
    return {n.id for n in tree if node in tree.path(n.id)}


@given(trees, st.data())
def test_every_node_is_drawn_once_or_counted_as_hidden(tree, data) -> None:
    start = data.draw(st.integers(0, len(tree) - 1))
    depth = data.draw(st.none() | st.integers(0, 6))
    limit, levels = data.draw(st.integers(1, 90)), data.draw(st.integers(0, 8))
    found = list(all_strands(strands(tree, start, depth=depth, limit=limit, levels=levels)))
    nodes = [node for strand in found for node in strand.nodes]
    assert len(nodes) == len(set(nodes))
    assert set(nodes) <= below(tree, start)
    assert len(nodes) + sum(strand.hidden for strand in found) == len(below(tree, start))
    assert depth is None or all(tree[n].depth <= tree[start].depth + depth for n in nodes)


@given(trees)
def test_without_limits_all_is_drawn_parents_first(tree) -> None:
    found = all_strands(strands(tree, 0, limit=len(tree), levels=len(tree)))
    nodes = [node for strand in found for node in strand.nodes]
    assert sorted(nodes) == list(range(len(tree)))
    place = {node: index for index, node in enumerate(nodes)}
    assert all(place[n.parent] < place[n.id] for n in tree.edges())


@given(trees)
def test_only_forks_indent(tree) -> None:
    for strand in all_strands(strands(tree, 0, limit=len(tree), levels=len(tree))):
        assert len(strand.branches) != 1
        assert all(len(tree.children(node)) == 1 for node in strand.nodes[:-1])


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(60, 160))
def test_a_page_is_no_wider_than_the_terminal(
    draw: Draw, seed: int, nodes: int, width: int
) -> None:
    stored = stored_tree(seed, nodes)
    page = draw(tree_page(stored, PageOptions(width=width, limit=0)), width=width)
    assert all(cell_len(line) <= width for line in page.splitlines())


@given(st.integers(0, 2**32), st.integers(2, 60))
def test_a_wide_page_shows_every_node(draw: Draw, seed: int, nodes: int) -> None:
    stored = stored_tree(seed, nodes)
    page = draw(tree_page(stored, PageOptions(width=2000, limit=0)), width=2000)
    assert page.count(" tok  so⏎") == len(stored.tree) - 1


HOSTILE = "[red]x[/red] [link=file:///etc]y[/link]\x1b[2J\x1b]0;title\x07\r\u202eevil\x9b31m"


def test_hostile_text_is_shown_and_never_obeyed(draw: Draw) -> None:
    stored = stored_tree(3, 12, HOSTILE)
    for options in (PageOptions(width=300), PageOptions(width=300, node=1)):
        page = draw(tree_page(stored, options), width=300)
        assert "[red]x[/red]" in page
        assert "\\u202eevil" in page
        assert not set(page) & set("\x1b\x07\r\x9b\u202e")


def test_a_hostile_problem_is_shown_as_text_too(draw: Draw) -> None:
    stored = stored_tree(3, 5)
    header = stored.tree.header
    stored.tree.header = replace(
        header, problem=replace(header.problem, id="[bold]\x1b[31m", prompt=HOSTILE, label="\x1b")
    )
    page = draw(tree_page(stored, PageOptions()))
    assert "[bold]␛[31m" in page
    assert "\x1b" not in page


def test_wide_characters_do_not_break_the_width(draw: Draw) -> None:
    stored = stored_tree(5, 30, "木は枝分かれする木は枝分かれする木は枝分かれする")
    page = draw(tree_page(stored, PageOptions(width=70)), width=70)
    assert all(cell_len(line) <= 70 for line in page.splitlines())


def test_a_deep_tree_is_summed_up_instead_of_squeezed(draw: Draw) -> None:
    sketch = end(1.0)
    for _ in range(60):
        sketch = fork(0.5, sketch, end(0.0))
    tree = build_tree(sketch)
    stored = StoredTree(tree=tree, credit=RefinedTd().estimate(tree))
    page = draw(tree_page(stored, PageOptions(width=80, limit=0)), width=80)
    assert "more below node" in page
    assert all(cell_len(line) <= 80 for line in page.splitlines())


def test_the_golden_page_in_ascii(draw: Draw) -> None:
    tree = build_tree(
        fork(0.5, chain([0.5, 0.75], outcome=1.0), fork(0.25, end(0.0), end(1.0, truncated=True)))
    )
    tree.selections.append(
        Selection(expansion=0, node=0, phase=0, score=0.25, rivals=0, free_tokens=64)
    )
    stored = StoredTree(
        tree=tree,
        texts={node.id: f"say {node.id}\n" for node in tree},
        credit=RefinedTd().estimate(tree),
    )
    page = draw(AsciiGuides(tree_page(stored, PageOptions(glyphs=ASCII))))
    assert [line.rstrip() for line in page.splitlines()] == GOLDEN.splitlines()


GOLDEN = r"""problem    drawn: a drawing
collected  run local, round 0, attempt 0; policy policy-0, critic critic-0
tree       7 nodes, 2 forks, 3 leaves, 1 launches, 6 tokens
outcomes   2 ok  1 no  root V 0.500 -> V^ 0.500  credit by refined_td

node, A advantage, V value -> V^ after the evidence (or ok no outcome), tokens, text
  0  V 0.50 -> 0.50
+-- launch 0 from node 0, phase 0: score 0.25, 0 rivals, 64 tokens free
|     1  A +0.250  V 0.50 -> 0.75   1 tok  say 1\n
|     2  A +0.125  V 0.75 -> 0.88   1 tok  say 2\n
|     3  A +0.125  ok 1             1 tok  say 3\n
`--   4  A -0.083  V 0.25 -> 0.42   1 tok  say 4\n
    +--   5  A -0.417  no 0             1 tok  say 5\n
    `--   6  A +0.583  ok 1          truncated    1 tok  say 6\n"""


def test_details_of_a_node_name_value_target_edge_and_why(draw: Draw) -> None:
    stored = stored_tree(7, 20)
    for node in stored.tree:
        page = draw(tree_page(stored, PageOptions(node=node.id)))
        assert ("outcome" if node.is_terminal else "value") in page
        assert ("request" in page) == (node.edge is not None)


def test_a_tree_without_credit_or_texts_is_drawn_too(draw: Draw) -> None:
    stored = StoredTree(tree=stored_tree(1, 9).tree)
    page = draw(tree_page(stored, PageOptions()))
    assert "ids 1" in page
    assert draw(tree_page(stored, PageOptions(node=1)))


def test_the_example_is_a_tree_with_both_outcomes() -> None:
    def stored(*outcomes: float) -> StoredTree:
        tree = build_tree(fork(0.5, *(end(outcome) for outcome in outcomes)))
        return StoredTree(tree=tree, credit=RefinedTd().estimate(tree))

    trees = {"none": stored(0.0, 0.0), "mixed": stored(1.0, 0.0), "all": stored(1.0, 1.0)}
    assert best_example(trees) == "mixed"


def test_an_unknown_node_is_an_error() -> None:
    with pytest.raises(KeyError, match="no node 99"):
        tree_page(stored_tree(1, 9), PageOptions(node=99))
